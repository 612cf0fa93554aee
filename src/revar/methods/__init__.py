"""Ways to train, one small file each."""
