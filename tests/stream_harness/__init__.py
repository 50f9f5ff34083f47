"""Random streaming queries, each compared with one batch over the same rows: `python -m tests.stream_harness`."""
