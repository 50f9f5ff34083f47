"""Secondary indexes over the records of tables: doubly linked chains by hash, in three words of each record.

At word `field` of a record: [next record, address of the word that points here, hash]. The header is like that of a
table. Without a key, all records are in one chain, and the index never gets more buckets.
"""

from __future__ import annotations

from sparkext.kernels.arena.room import allocate, release
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.runtime.jit import inlined

CHAIN_WORDS = 3


@inlined
def chain(arena: Int64Array, index: int, record: int, field: int, hashed: int, has_key: int) -> None:
    """Add a record to an index."""
    arena[record + field + 2] = hashed
    _put(arena, arena[index] + (hashed & arena[index + 1]), record, field)
    arena[index + 2] += 1
    if has_key != 0 and arena[index + 2] > arena[index + 1]:
        _widen(arena, index, field)


@inlined
def unchain(arena: Int64Array, index: int, record: int, field: int) -> None:
    """Remove a record from an index."""
    following, link = arena[record + field], arena[record + field + 1]
    arena[link] = following
    if following != 0:
        arena[following + field + 1] = link
    arena[index + 2] -= 1


@inlined
def empty_chains(arena: Int64Array, index: int) -> None:
    """Remove all records from an index."""
    for bucket in range(arena[index], arena[index] + arena[index + 1] + 1):
        arena[bucket] = 0
    arena[index + 2] = 0


@inlined
def _put(arena: Int64Array, head: int, record: int, field: int) -> None:
    following = arena[head]
    arena[record + field] = following
    arena[record + field + 1] = head
    arena[head] = record
    if following != 0:
        arena[following + field + 1] = record + field


@inlined
def _widen(arena: Int64Array, index: int, field: int) -> None:
    """Double the number of buckets."""
    old, count = arena[index], arena[index + 1] + 1
    new = allocate(arena, 2 * count)
    for bucket in range(2 * count):
        arena[new + bucket] = 0
    for bucket in range(count):
        record = arena[old + bucket]
        while record != 0:
            following = arena[record + field]
            _put(arena, new + (arena[record + field + 2] & (2 * count - 1)), record, field)
            record = following
    arena[index] = new
    arena[index + 1] = 2 * count - 1
    release(arena, old, count)
