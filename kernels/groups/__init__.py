"""Group ids, and the accumulators of aggregates."""
