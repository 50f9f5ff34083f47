"""Memory: sizes of indexes, the output-size controller, and joins that exceed the memory."""
