"""Rows of a key in the order of time, on the driver and in workers (`docs/papers.md` 1)."""
