"""The sinks of pipelines. Each sink has its own file (see `sparkext.engine.nodes`)."""
