"""What makes rows of rows: one operator a file (see `sparkext.worker.nodes`)."""
