"""The operators that are tested, each with its oracle."""
