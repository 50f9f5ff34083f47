"""Which index a join gets, with the reason in words.

The choice is made by the process that builds the index, once the keys of the build side are known: it depends on their
layout, number and range.
"""

from __future__ import annotations

from dataclasses import dataclass

DENSE_RANGE_PER_ROW = 8
"""A dense index costs four bytes a slot, a hash index 24 to 48 a key: up to this ratio the dense one is smaller."""

SMALL_DENSE_RANGE = 1 << 16
"""A range this small is always worth direct addressing: 256 KiB, which stays in the second-level cache."""


HASH_BUILD_BYTES_PER_ROW = 96
"""Memory that a hash index needs while it is built: keys partitioned, keys sorted, homes, up to 48 for the table."""

CLUSTERED_ROWS_PER_KEY = 4
"""From so many build rows a key on, the payload is copied into the order of keys, where memory allows."""

CLUSTERED_SHARE = 0.25
"""The part of the free memory that the copy may take."""


@dataclass(frozen=True)
class BuildKeys:
    """What is known of a build side's keys.

    - `rows`: build rows; `valid`: those whose key can match.
    - `word`: the keys fit one 64-bit word each; `smallest` and `largest` bound the valid words (None if none is valid).
    """

    rows: int
    valid: int
    word: bool
    smallest: int | None = None
    largest: int | None = None

    @property
    def span(self) -> int | None:
        """Number of possible words between the bounds, or None without bounds."""
        if self.smallest is None or self.largest is None:
            return None
        return self.largest - self.smallest + 1


@dataclass(frozen=True)
class IndexChoice:
    """`kind` is `hash`, `dense` or `ordered`; `reason` is a clause for people."""

    kind: str
    reason: str


def choose_index(
    algorithm: str, keys: BuildKeys, headroom: int | None = None, probe_ordered: bool = False
) -> IndexChoice:
    """Choose the index for `algorithm` (`auto`, `hash` or `sort_merge`); `headroom` is the free memory in bytes.

    `auto` is a hash join while its index can be built in the free memory: bisection among millions of keys costs five
    to ten times a hash probe. Where memory is short, a sorted index takes a third of it; where probe rows are known to
    come in the order of the key, merging them takes half the time of a hash probe, and the index is built in an eighth.
    Both `auto` and `hash` use direct addressing where keys are dense, which is faster than either.
    """
    if algorithm == "sort_merge":
        return IndexChoice("ordered", "sort-merge was asked for")
    span = keys.span
    if keys.word and span is not None and span <= max(DENSE_RANGE_PER_ROW * keys.valid, SMALL_DENSE_RANGE):
        return IndexChoice("dense", f"keys span {span:,} values for {keys.valid:,} rows: addressed directly")
    if algorithm == "auto" and keys.word and span is not None and probe_ordered:
        return IndexChoice("ordered", "probe rows come in the order of the key: merged")
    needed = HASH_BUILD_BYTES_PER_ROW * keys.valid
    if algorithm == "auto" and keys.word and headroom is not None and needed > headroom:
        return IndexChoice("ordered", f"a hash index would take {needed:,} bytes to build, {headroom:,} are free")
    if not keys.word:
        return IndexChoice("hash", "keys are byte strings or wider than 64 bits")
    if span is None:
        return IndexChoice("hash", "no build row has a key that can match")
    return IndexChoice("hash", f"keys span {span:,} values for {keys.valid:,} rows: too sparse to address directly")


def worth_clustering(rows: int, distinct: int, payload_bytes: int, headroom: int | None) -> bool:
    """Tell whether to copy the payload into the order of keys: then the matches of a probe row lie side by side.

    `headroom` is the free memory in bytes, None if unknown. Measured, ten matches a key, 20 M pairs with two integers
    and a string of payload: the whole join takes 0.6 of the time.
    """
    fits = headroom is None or payload_bytes <= CLUSTERED_SHARE * headroom
    return fits and rows >= CLUSTERED_ROWS_PER_KEY * max(distinct, 1)
