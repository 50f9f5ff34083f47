"""Decisions of a running pipeline: index, join order, semi-joins, output sizes."""
