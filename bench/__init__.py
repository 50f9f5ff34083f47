"""Benchmarks: `python -m bench --list`. Every answer is checked before a time is reported."""
