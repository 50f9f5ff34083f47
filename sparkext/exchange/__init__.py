"""The exchange: rows sent to other tasks by key, in blocks (`cell`), and received by partitions (`slot`)."""
