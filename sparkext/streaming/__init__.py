"""Operators on streams: joins, ordered rows and continuous queries, and their state."""
