"""Entry points in Spark's Python workers, which the extension in the JVM names."""
