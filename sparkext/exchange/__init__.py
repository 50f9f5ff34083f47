"""Rows on their way to other tasks, by key: cells, and what becomes of them in a slot."""
