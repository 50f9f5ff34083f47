"""As-of joins, of tables and of streams: each row joined with the nearest row."""
