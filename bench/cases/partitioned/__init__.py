"""Partitioned joins and the load balancer."""
