"""Queries over files: complete queries, hard joins, scans, table formats and object stores."""
