"""A set of dense keys: one bit for each value from the smallest key to the largest.

    keys 3, 7, 4, 3          bits[key - min], the lowest bit of each byte first
                             ┌───────────────┐
    min = 3            ────▶ │ 1 1 0 0 1 0 0 0 │
                             └───────────────┘

It serves joins that only test whether a key exists: semi, anti and existence joins without a condition in addition to
their keys. For eleven million line items, whose order keys span eighteen million values, a set has 2 MB, which fit the
cache, whereas a `DenseIndex` has 115 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array
from sparkext.kernels.columns.row_ids import RowIds
from sparkext.kernels.indexes.array_index import ArrayIndex
from sparkext.kernels.indexes.matches import Matches
from sparkext.kernels.keys.normalised import NormalisedKeys
from sparkext.kernels.runtime.jit import freeze, kernel


@dataclass(frozen=True)
class KeySet(ArrayIndex):
    """See the module's drawing. `bits`: uint8; bits from `span` on are zero. A key in the set has one match."""

    kind: ClassVar[str] = "key set"
    rows: ClassVar[None] = None
    starts: ClassVar[None] = None

    bits: UInt8Array
    minimum: int
    span: int

    @property
    def distinct(self) -> int:
        """The number of distinct keys."""
        return int(np.bitwise_count(self.bits).sum())

    def lookup(self, keys: NormalisedKeys) -> Matches:
        """Return one match for every probe key in the set. Its build row has no meaning."""
        assert keys.words is not None, "only keys that fit a word are in a set"
        first = np.empty(keys.length, dtype=np.int32)
        matched = _look_up(keys.words, keys.mask, self.bits, np.int64(self.minimum), np.uint64(self.span), first)
        return Matches(freeze(first), None, None, matched, matched)


def build_key_set(keys: NormalisedKeys, minimum: int, maximum: int) -> KeySet:
    """Collect valid words, all of which are in [minimum, maximum]."""
    assert keys.words is not None
    span = maximum - minimum + 1
    bits = np.zeros((span + 7) // 8, dtype=np.uint8)
    _collect(keys.words, keys.mask, np.int64(minimum), bits)
    return KeySet(freeze(bits), minimum, span)


@kernel
def _collect(words: Int64Array, valid: UInt8Array, minimum: np.int64, bits: UInt8Array) -> None:
    """Set the bit of every valid word."""
    all_valid = valid.size == 0
    for i in range(words.size):
        if all_valid or valid[i] != 0:
            slot = words[i] - minimum
            bits[slot >> 3] |= np.uint8(1 << (slot & 7))


@kernel
def _look_up(
    words: Int64Array, valid: UInt8Array, bits: UInt8Array, minimum: np.int64, span: np.uint64, first: RowIds
) -> int:
    """first[i] = 0 if the bit of words[i] is set, else -1; return the number of hits. No branch depends on the bits."""
    all_valid = valid.size == 0
    lowest = np.uint64(minimum)
    matched = 0
    for i in range(words.size):
        slot = np.uint64(words[i]) - lowest  # a word below the minimum wraps, and is out of the span as well
        found = np.int32(0)
        if slot < span and (all_valid or valid[i] != 0):
            found = np.int32((bits[np.int64(slot >> np.uint64(3))] >> np.uint8(slot & np.uint64(7))) & 1)
        first[i] = found - np.int32(1)
        matched += found
    return matched
