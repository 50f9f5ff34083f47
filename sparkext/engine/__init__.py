"""The join engine in Spark's Python workers: pipelines from a source through operators to a sink."""
