"""All that touches PySpark's internals, its JVM and the jar."""
