"""The contestants: this package and other engines, and comparisons of their answers."""
