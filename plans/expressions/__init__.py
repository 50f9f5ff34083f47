"""Expressions as plain data: types, evaluators, ranges."""
