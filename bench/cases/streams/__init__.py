"""Streams: joins, rows in order, continuous queries."""
