"""Continuous queries, recursive ones included (`docs/papers.md` 2)."""
