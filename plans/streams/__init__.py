"""Partitioning and compaction of stored streams."""
