"""Pipelines as plain data: joins, scans, aggregates, output."""
