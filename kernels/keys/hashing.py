"""Hash functions of the join indexes: one for words, one for byte strings.

Both are mixed well enough that the top bits select a bucket and the low bits form a Bloom tag. They are internal: they
need not equal Spark's hashes, but only be consistent within one index. Every hash is ANDed with a mask that is all ones
in production; tests set it to zero so that all keys collide.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, VarBytes
from sparkext.kernels.runtime.intrinsics import load_u64
from sparkext.kernels.runtime.jit import freeze, inlined, kernel

FULL_MASK = (1 << 64) - 1

# Odd 64-bit constants with no short period: the golden ratio, and two multipliers of MurmurHash3's finaliser.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT_32 = np.uint64(32)
_SHIFT_29 = np.uint64(29)


@inlined
def mix_word(word: np.int64) -> np.uint64:
    """Hash one 64-bit word, by two multiplications: one alone leaves the low bits of round numbers constant."""
    h = np.uint64(word) * _GOLDEN
    h ^= h >> _SHIFT_32
    h *= _MIX_2
    return h ^ (h >> _SHIFT_29)


@inlined
def hash_span(data: UInt8Array, start: int, end: int) -> np.uint64:
    """Hash the bytes `data[start:end]`, eight at a time; reads nothing outside that span."""
    length = end - start
    h = np.uint64(length) * _MIX_1
    position = start
    while end - position >= 8:
        h = (h ^ load_u64(data, position)) * _MIX_1
        h ^= h >> _SHIFT_32
        position += 8
    if position < end:
        if length >= 8:
            # The last eight bytes, less those hashed already: a bit hashed twice could cancel itself out.
            tail = load_u64(data, end - 8) >> np.uint64(8 * (8 - (end - position)))
        else:
            tail = np.uint64(0)
            while position < end:
                tail = (tail << np.uint64(8)) | np.uint64(data[position])
                position += 1
        h = (h ^ tail) * _MIX_2
        h ^= h >> _SHIFT_32
    h *= _GOLDEN
    return h ^ (h >> _SHIFT_29)


@kernel
def _hash_rows(offsets: Int64Array, data: UInt8Array, mask: np.uint64, out: Int64Array) -> None:
    for i in range(out.size):
        out[i] = np.int64(hash_span(data, offsets[i], offsets[i + 1]) & mask)


def hash_rows(rows: VarBytes, mask: int = FULL_MASK) -> npt.NDArray[np.int64]:
    """Hash every row of `rows` to one word, int64[n]."""
    out = np.empty(rows.offsets.size - 1, dtype=np.int64)
    _hash_rows(rows.offsets, rows.data, np.uint64(mask), out)
    return freeze(out)


@kernel
def _hash_words(words: Int64Array, mask: np.uint64, out: Int64Array) -> None:
    for i in range(out.size):
        out[i] = np.int64(mix_word(words[i]) & mask)


def hash_words(words: Int64Array, mask: int = FULL_MASK) -> npt.NDArray[np.int64]:
    """Hash every word of `words`, int64[n]."""
    out = np.empty(words.size, dtype=np.int64)
    _hash_words(words, np.uint64(mask), out)
    return freeze(out)
