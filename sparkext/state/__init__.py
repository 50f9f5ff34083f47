"""What a stream has left behind: rows in files of a query's checkpoint, written once, merged, and dropped in time."""
