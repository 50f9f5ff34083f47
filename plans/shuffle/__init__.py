"""Partitioned joins: routing, load balancing, matrices."""
