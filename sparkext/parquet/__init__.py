"""The scan: Parquet files read by workers, from local disks and object stores."""
