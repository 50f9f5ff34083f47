"""Rows sent to other tasks: buckets, checksums of blocks, estimates of pairs."""
