"""Expressions evaluated on rows of a pipeline, column by column."""
