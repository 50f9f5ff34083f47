"""Data structures of generated code in one array of words, the arena. Unused words are never touched.

An address is the position of a word; 0 is no address. A header has a fixed address; records are allocated and released.
A state is saved as a copy of all words before the first word that was never used.
"""
