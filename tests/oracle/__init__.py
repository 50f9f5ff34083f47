"""Slow, obvious references in plain Python: dictionaries, loops and explicit rules of Spark. No numpy, no Arrow."""
