"""Slow, obvious references in plain Python: dictionaries, loops and Spark's rules spelt out. No numpy, no Arrow."""
