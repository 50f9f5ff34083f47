"""Choice of a join's index, with the reason as text.

The process that builds the index makes the choice once the keys of the build side are known: it depends on their
layout, number and range.
"""

from __future__ import annotations

from dataclasses import dataclass

DENSE_RANGE_PER_ROW = 8
"""A dense index costs four bytes a slot, a hash index 24 to 48 a key: the dense one is smaller up to this ratio."""

SMALL_DENSE_RANGE = 1 << 16
"""A range up to this size is always addressed directly: the slots are 256 KiB, which fits the second-level cache."""

SLOTS_PER_BIT = 32
"""A key set costs a bit per value, a dense index a slot of 32 bits: a key set pays for ranges this many times wider."""


HASH_BUILD_BYTES_PER_ROW = 96
"""Memory to build a hash index, per row: partitioned keys, sorted keys, home slots, up to 48 bytes for the table.

Measured on 4 M keys: 84 bytes a row if all keys differ, 44 with ten rows per key.
"""

ORDERED_BUILD_BYTES_PER_ROW = 48
"""The same for a sorted index: words and row ids twice, and the first position of each word. Measured: 40 bytes, 24
with ten rows per key."""

HASH_BUILD_BYTES_PER_TEXT = 144
"""Memory to build a hash index of byte strings, per row, in addition to the bytes: it includes their hashes and
offsets. Measured: 133."""

ORDERED_BUILD_BYTES_PER_TEXT = 72
"""The same for a sorted index of byte strings. Measured: 60."""

SORT_BYTES_PER_ROW = 48
"""Memory to sort the rows of a range or as-of join, per row, in addition to the index of groups. Measured: 22."""

RANK_BYTES_PER_ROW = 104
"""Memory to rank a compared column of texts or other byte strings, per row, in addition to `SORT_BYTES_PER_ROW` and to
`RANK_COPIES` copies of the column. Measured altogether: 161 bytes a row for texts of 12 bytes, 887 for texts of 204
bytes (256 if few differ), 208 for wide decimals."""

RANK_COPIES = 4

SMALL_BUILD_BYTES = 32 << 20
"""An index that needs no more memory than this is always built: the measured headroom may be wrong by as much."""

CLUSTERED_ROWS_PER_KEY = 4
"""From this many build rows per key on, the payload is copied into the order of keys, if memory allows."""

CLUSTERED_SHARE = 0.25
"""The share of the free memory that the copy may use."""


@dataclass(frozen=True)
class BuildKeys:
    """Properties of a build side's keys.

    - `rows`: number of build rows; `valid`: number of rows whose key can match.
    - `word`: the keys fit one 64-bit word each; `smallest` and `largest` bound the valid words (None if none is valid).
    - `key_bytes`: total size of all keys if they are byte strings.
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
    """`kind` is `hash`, `dense`, `key set` or `ordered`; `reason` is text for people; `bytes`: memory to build it."""

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

    `auto` is a hash join if its index can be built in the free memory: bisection among millions of keys costs five to
    ten times a hash probe. If probe rows are known to be in the order of the key (`probe_ordered`), merging costs half
    as much as hash probes, and building the index an eighth. Both `auto` and `hash` use direct addressing for dense
    keys, which is faster than either. If `rows_matter` is false, the join only tests whether a key exists, and dense
    keys are stored as a set of bits. If the index does not fit the free memory and a sorted index needs less, the
    sorted index is chosen, whatever was requested. The caller has to check whether the sorted index fits.
    """
    kind, reason = _choose_fastest(algorithm, keys, probe_ordered, rows_matter)
    needed = estimate_build_bytes(kind, keys)
    if kind != "ordered" and not fits(needed, headroom):
        least = estimate_build_bytes("ordered", keys)
        if least < needed:
            return IndexChoice(
                "ordered", f"building a {kind} index needs {needed:,} bytes, {headroom:,} are free", least
            )
    return IndexChoice(kind, reason, needed)


def _choose_fastest(algorithm: str, keys: BuildKeys, probe_ordered: bool, rows_matter: bool) -> tuple[str, str]:
    """Return the kind of index to build if memory does not matter, and the reason."""
    if algorithm == "sort_merge":
        return "ordered", "sort-merge was requested"
    if not keys.word:
        return "hash", "keys are byte strings or wider than 64 bits"
    span = keys.span
    if span is None:
        return "hash", "no build row has a key that can match"
    dense = max(DENSE_RANGE_PER_ROW * keys.valid, SMALL_DENSE_RANGE)
    if not rows_matter and span <= SLOTS_PER_BIT * dense:
        return (
            "key set",
            f"keys span {span:,} values for {keys.valid:,} rows, and the join only tests whether a key exists",
        )
    if span <= dense:
        return "dense", f"keys span {span:,} values for {keys.valid:,} rows: addressed directly"
    if algorithm == "auto" and probe_ordered:
        return "ordered", "probe rows are in the order of the key: merged"
    return "hash", f"keys span {span:,} values for {keys.valid:,} rows: too sparse to address directly"


def estimate_build_bytes(kind: str, keys: BuildKeys) -> int:
    """Return the most memory that an index needs while it is built, in addition to the keys."""
    if kind == "key set":
        assert keys.span is not None, "keys of a set have bounds"
        return keys.span // 8 + 1
    if kind == "dense":
        assert keys.span is not None, "dense keys have bounds"
        # The slots. If the build finds a repeated key: a second array of slots, and the row ids.
        return (2 * keys.span + keys.valid) * (4 if keys.rows < 1 << 31 else 8)
    if keys.word:
        return keys.valid * (HASH_BUILD_BYTES_PER_ROW if kind == "hash" else ORDERED_BUILD_BYTES_PER_ROW)
    bytes_per_text = HASH_BUILD_BYTES_PER_TEXT if kind == "hash" else ORDERED_BUILD_BYTES_PER_TEXT
    return keys.valid * bytes_per_text + keys.key_bytes


def fits(needed: int, headroom: int | None) -> bool:
    """Return whether `needed` bytes can be allocated if `headroom` bytes are free (None: unknown)."""
    return headroom is None or needed <= max(headroom, SMALL_BUILD_BYTES)


def is_worth_clustering(rows: int, distinct: int, payload_bytes: int, headroom: int | None) -> bool:
    """Return whether to copy the payload into the order of keys, so that the matches of a probe row are contiguous.

    `headroom` is the free memory in bytes, None if unknown. Measured with ten matches a key, 20 M pairs and a payload
    of two integers and a string: the whole join takes 0.6 times as long.
    """
    fits = headroom is None or payload_bytes <= CLUSTERED_SHARE * headroom
    return fits and rows >= CLUSTERED_ROWS_PER_KEY * max(distinct, 1)
