"""Random chains of joins as pipelines, through Spark, and through DuckDB: `python -m tests.fuzz.chains --help`."""
