"""Benchmarks; `python -m bench --list` lists them. Every answer is checked before a time is reported."""
