"""Tables are questions about runs: rows, columns, a figure, seeds."""
