"""Indexes of build sides, and the look-up of matches."""
