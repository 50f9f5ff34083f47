"""Numbers equal hashes: the first row of a hash gets 0, the next 1, and so on, over all batches of a task.

    hashes    7  3  7  7  3            table: an open-addressing slot per distinct hash, with its count so far
    numbers   0  0  1  2  1

The set of pairs (hash, number) does not depend on the order of the rows. So a random number that is derived from such a
pair is the same when a task runs again.
"""

from __future__ import annotations

import numpy as np

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.keys.hashing import mix_word
from sparkext.kernels.runtime.jit import freeze, kernel

_LEAST_SLOTS = 1 << 10
_NO_COUNT = np.int64(0)


@kernel
def _find(hashes: Int64Array, counts: Int64Array, wanted: np.int64) -> int:
    """Return the slot of a hash, or the empty slot for it. There has to be an empty slot."""
    last = hashes.size - 1
    at = np.int64(mix_word(wanted)) & last
    while counts[at] != _NO_COUNT and hashes[at] != wanted:
        at = (at + 1) & last
    return at


@kernel
def _number(rows: Int64Array, hashes: Int64Array, counts: Int64Array, out: Int64Array) -> int:
    """Write the number of each row's hash; return how many hashes are new."""
    new = 0
    for i in range(rows.size):
        at = _find(hashes, counts, rows[i])
        if counts[at] == _NO_COUNT:
            hashes[at] = rows[i]
            new += 1
        out[i] = counts[at]
        counts[at] += 1
    return new


@kernel
def _move_counts(hashes: Int64Array, counts: Int64Array, to_hashes: Int64Array, to_counts: Int64Array) -> None:
    for i in range(hashes.size):
        if counts[i] != _NO_COUNT:
            at = _find(to_hashes, to_counts, hashes[i])
            to_hashes[at] = hashes[i]
            to_counts[at] = counts[i]


class Occurrences:
    """The count of each hash so far: 16 bytes per slot, at least two slots per distinct hash."""

    def __init__(self) -> None:
        """Begin without hashes."""
        self._hashes, self._counts = (np.zeros(_LEAST_SLOTS, dtype=np.int64) for _ in range(2))
        self._distinct = 0

    def number(self, hashes: Int64Array) -> Int64Array:
        """Return int64[n]: how many earlier rows have the same hash as each row."""
        self._grow_arrays(self._distinct + hashes.size)
        out = np.empty(hashes.size, dtype=np.int64)
        self._distinct += _number(hashes, self._hashes, self._counts, out)
        return freeze(out)

    def _grow_arrays(self, distinct: int) -> None:
        slots = 1 << (2 * distinct - 1).bit_length() if distinct else 0
        if slots <= self._hashes.size:
            return
        hashes, counts = (np.zeros(slots, dtype=np.int64) for _ in range(2))
        _move_counts(freeze(self._hashes), freeze(self._counts), hashes, counts)
        self._hashes, self._counts = hashes, counts
