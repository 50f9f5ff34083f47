"""The tested operators, each with its oracle."""
