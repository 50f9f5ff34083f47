"""The sources of pipelines. Each source has its own file (see `sparkext.engine.nodes`)."""
