"""Arrow columns as numpy views, and their rows by row id."""
