"""The language of continuous queries: parser, names, types, and the graph of queries. It does not depend on Spark."""
