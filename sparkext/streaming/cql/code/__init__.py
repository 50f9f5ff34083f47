"""The engine of continuous queries: generated code, state and the loop over instants. It does not depend on Spark."""
