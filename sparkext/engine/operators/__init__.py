"""Operators transform row sets. Each operator has its own file (see `sparkext.engine.nodes`)."""
