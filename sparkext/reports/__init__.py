"""What tasks have done, and how it is shown."""
