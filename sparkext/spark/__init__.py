"""The bridge to Spark: PySpark's internals, its JVM and the jar."""
