"""Scans of Parquet files by workers, from local disks and object stores."""
