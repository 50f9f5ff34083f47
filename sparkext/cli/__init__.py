"""The commands of `python -m sparkext`."""
