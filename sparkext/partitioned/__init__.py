"""Partitioned joins: both sides are sent to partitions by key, and partitions are balanced while they run."""
