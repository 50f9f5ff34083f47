"""Structures that generated code keeps in one array of words: an arena, of which only what is used is ever touched.

An address is the place of a word, 0 is none. What has a fixed address is a header; records are allocated and released.
A state is saved by a copy of the words up to the first free one.
"""
