"""Joins of tables on the driver: arguments, resolved columns, build sides, and the pipeline that transforms extend."""
