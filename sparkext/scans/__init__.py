"""`scan_parquet` on the driver: arguments, filters, and the table that workers read."""
