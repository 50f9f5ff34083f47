"""The cases, a folder per subject; `bench.__main__` lists their modules."""
