"""Questions the paper asks that are no comparison of trained classifiers."""
