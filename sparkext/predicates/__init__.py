"""Conditions written in Python, compiled by numba for the nested loop of a theta join."""
