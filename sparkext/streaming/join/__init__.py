"""Joins of two streams on any condition, on the driver and in workers."""
