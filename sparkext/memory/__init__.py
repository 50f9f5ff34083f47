"""Measures free memory, and counts the tasks that share it."""
