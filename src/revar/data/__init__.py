"""From what users have (arrays, frames, folders, files) to tensors."""
