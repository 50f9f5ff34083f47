"""Helpers that several folders of tests use."""
