"""Where a pipeline's rows come from: one source a file (see `sparkext.worker.nodes`)."""
