"""Tables and pictures from figures; no tensors here."""
