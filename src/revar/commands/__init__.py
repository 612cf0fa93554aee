"""What the command line does, one importable function a verb."""
