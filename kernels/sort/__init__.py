"""Sorting rows by words, and merging sorted runs."""
