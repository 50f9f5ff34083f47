"""The public API for DataFrames: joins, scans and reports."""
