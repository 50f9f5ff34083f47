"""The search for random cases that differ from a reference: each is reported, shrunk and written as a program."""
