"""Hash tables of records: [next, hash, …]. A header is [address of the buckets, number of buckets - 1, records].

The first word of a record is the link to the next record, so heads of chains and records are traversed in the same way.
"""

from __future__ import annotations

from sparkext.kernels.arena.room import allocate, allocate_zeros, release
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.runtime.jit import inlined

TABLE_WORDS = 3
NEXT, HASH = 0, 1
RECORD_WORDS = 2
"""Number of words of a record that the table uses."""

_FIRST_BUCKETS = 8


@inlined
def open_table(arena: Int64Array, table: int) -> None:
    """Initialise a header as an empty table."""
    arena[table] = allocate_zeros(arena, _FIRST_BUCKETS)
    arena[table + 1] = _FIRST_BUCKETS - 1
    arena[table + 2] = 0


@inlined
def find_first(arena: Int64Array, table: int, hashed: int) -> int:
    """Return the first record of the bucket of a hash; 0 if there is none."""
    return arena[arena[table] + (hashed & arena[table + 1])]


@inlined
def link(arena: Int64Array, table: int, record: int) -> None:
    """Add a record, whose hash is set, to a table."""
    head = arena[table] + (arena[record + HASH] & arena[table + 1])
    arena[record] = arena[head]
    arena[head] = record
    arena[table + 2] += 1
    if arena[table + 2] > arena[table + 1]:
        _widen(arena, table)


@inlined
def unlink(arena: Int64Array, table: int, record: int) -> None:
    """Remove a record from a table."""
    at = arena[table] + (arena[record + HASH] & arena[table + 1])
    while arena[at] != record:
        at = arena[at]
    arena[at] = arena[record]
    arena[table + 2] -= 1


@inlined
def _widen(arena: Int64Array, table: int) -> None:
    """Double the number of buckets."""
    old, count = arena[table], arena[table + 1] + 1
    new = allocate(arena, 2 * count)
    for bucket in range(count):
        # Chains keep their order: results must not depend on when a table grew.
        low, high = new + bucket, new + bucket + count
        record = arena[old + bucket]
        while record != 0:
            following = arena[record]
            if arena[record + HASH] & count != 0:
                arena[high] = record
                high = record
            else:
                arena[low] = record
                low = record
            record = following
        arena[low] = 0
        arena[high] = 0
    arena[table] = new
    arena[table + 1] = 2 * count - 1
    release(arena, old, count)
