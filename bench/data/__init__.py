"""Data that is generated for the cases."""
