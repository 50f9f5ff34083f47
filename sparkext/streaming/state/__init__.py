"""The stored state of streams: files with rows in the checkpoint of a query, written once, compacted, and expired."""
