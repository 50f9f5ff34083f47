"""Random SQL queries over random tables, through the extension and by Spark alone: `python -m tests.fuzz --help`."""
