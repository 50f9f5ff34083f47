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

SLOTS_PER_BIT = 32
"""A set of keys costs a bit where a dense index costs a slot: it pays for ranges that are wider by as much."""


HASH_BUILD_BYTES_PER_ROW = 96
"""Memory that a hash index needs while it is built: keys partitioned, keys sorted, homes, up to 48 for the table.

Measured on 4 M keys: 84 bytes a row where all differ, 44 where ten are equal.
"""

ORDERED_BUILD_BYTES_PER_ROW = 48
"""The same for a sorted index: words and row ids twice, where the words begin. Measured: 40 bytes, 24 of ten equal."""

HASH_BUILD_BYTES_PER_TEXT = 144
"""The same for keys of bytes, beside the bytes: their hashes and offsets too. Measured: 133."""

ORDERED_BUILD_BYTES_PER_TEXT = 72
"""The same for a sorted index of such keys. Measured: 60."""

SORT_BYTES_PER_ROW = 48
"""Memory that it takes to order the rows of a range or as-of join, beside the index of their groups. Measured: 22."""

RANK_BYTES_PER_ROW = 104
"""What it takes beside that to rank text and other bytes that are compared, for each row and, in `RANK_COPIES`, of the
column itself. Measured with both: 161 bytes a row of 12, 887 of 204 (256 if few differ), 208 of wide decimals."""

RANK_COPIES = 4

SMALL_BUILD_BYTES = 32 << 20
"""What takes no more is built whatever the probe says: that is as much as it may be wrong by."""

CLUSTERED_ROWS_PER_KEY = 4
"""From so many build rows a key on, the payload is copied into the order of keys, where memory allows."""

CLUSTERED_SHARE = 0.25
"""The part of the free memory that the copy may take."""


@dataclass(frozen=True)
class BuildKeys:
    """What is known of a build side's keys.

    - `rows`: build rows; `valid`: those whose key can match.
    - `word`: the keys fit one 64-bit word each; `smallest` and `largest` bound the valid words (None if none is valid).
    - `key_bytes`: of all keys where they are byte strings.
    """

    rows: int
    valid: int
    word: bool
    smallest: int | None = None
    largest: int | None = None
    key_bytes: int = 0

    @property
    def span(self) -> int | None:
        """Number of possible words between the bounds, or None without bounds."""
        if self.smallest is None or self.largest is None:
            return None
        return self.largest - self.smallest + 1


@dataclass(frozen=True)
class IndexChoice:
    """`kind` is `hash`, `dense`, `key set` or `ordered`; `reason` is for people; `bytes`: what it takes to build it."""

    kind: str
    reason: str
    bytes: int


def choose_index(
    algorithm: str,
    keys: BuildKeys,
    headroom: int | None = None,
    probe_ordered: bool = False,
    rows_matter: bool = True,
) -> IndexChoice:
    """Choose the index for `algorithm` (`auto`, `hash` or `sort_merge`); `headroom` is the free memory in bytes.

    `auto` is a hash join while its index can be built in the free memory: bisection among millions of keys costs five
    to ten times a hash probe. Where probe rows are known to come in the order of the key, merging them takes half the
    time of a hash probe, and the index is built in an eighth. Both `auto` and `hash` use direct addressing where keys
    are dense, which is faster than either; where not `rows_matter`, but only whether there is one with a key, these are
    a set of bits. What does not fit the free memory gives way to a sorted index, which takes the least, whatever was
    asked for; whether that fits is for the caller to see.
    """
    kind, reason = _fastest(algorithm, keys, probe_ordered, rows_matter)
    needed = build_bytes(kind, keys)
    if kind != "ordered" and not fits(needed, headroom):
        least = build_bytes("ordered", keys)
        if least < needed:
            return IndexChoice(
                "ordered", f"a {kind} index would take {needed:,} bytes to build, {headroom:,} are free", least
            )
    return IndexChoice(kind, reason, needed)


def _fastest(algorithm: str, keys: BuildKeys, probe_ordered: bool, rows_matter: bool) -> tuple[str, str]:
    """Return the kind of index to build where there is memory for any, and why."""
    if algorithm == "sort_merge":
        return "ordered", "sort-merge was asked for"
    if not keys.word:
        return "hash", "keys are byte strings or wider than 64 bits"
    span = keys.span
    if span is None:
        return "hash", "no build row has a key that can match"
    dense = max(DENSE_RANGE_PER_ROW * keys.valid, SMALL_DENSE_RANGE)
    if not rows_matter and span <= SLOTS_PER_BIT * dense:
        return "key set", f"keys span {span:,} values for {keys.valid:,} rows, and only whether they are there is asked"
    if span <= dense:
        return "dense", f"keys span {span:,} values for {keys.valid:,} rows: addressed directly"
    if algorithm == "auto" and probe_ordered:
        return "ordered", "probe rows come in the order of the key: merged"
    return "hash", f"keys span {span:,} values for {keys.valid:,} rows: too sparse to address directly"


def build_bytes(kind: str, keys: BuildKeys) -> int:
    """Return the memory that an index needs at most while it is built, beside the keys."""
    if kind == "key set":
        assert keys.span is not None, "keys of a set have bounds"
        return keys.span // 8 + 1
    if kind == "dense":
        assert keys.span is not None, "dense keys have bounds"
        # Slots, and others with the row ids should a key repeat, which shows on the way.
        return (2 * keys.span + keys.valid) * (4 if keys.rows < 1 << 31 else 8)
    if keys.word:
        return keys.valid * (HASH_BUILD_BYTES_PER_ROW if kind == "hash" else ORDERED_BUILD_BYTES_PER_ROW)
    each = HASH_BUILD_BYTES_PER_TEXT if kind == "hash" else ORDERED_BUILD_BYTES_PER_TEXT
    return keys.valid * each + keys.key_bytes


def fits(needed: int, headroom: int | None) -> bool:
    """Return whether so much memory can be taken where `headroom` is free (None: it is not known)."""
    return headroom is None or needed <= max(headroom, SMALL_BUILD_BYTES)


def worth_clustering(rows: int, distinct: int, payload_bytes: int, headroom: int | None) -> bool:
    """Return whether to copy the payload into the order of keys: then the matches of a probe row lie side by side.

    `headroom` is the free memory in bytes, None if unknown. Measured, ten matches a key, 20 M pairs with two integers
    and a string of payload: the whole join takes 0.6 of the time.
    """
    fits = headroom is None or payload_bytes <= CLUSTERED_SHARE * headroom
    return fits and rows >= CLUSTERED_ROWS_PER_KEY * max(distinct, 1)
