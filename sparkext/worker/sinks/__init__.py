"""Where a pipeline ends: one sink a file (see `sparkext.worker.nodes`)."""
