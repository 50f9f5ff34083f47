"""The transforms and functions that users import."""
