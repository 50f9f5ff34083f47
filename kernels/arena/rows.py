"""Rows in an arena: a word of null bits, of which bit k is set if value k is null, followed by the values.

The address of a row is that of its null bits. `width` is the number of its values.
"""

from __future__ import annotations

import numpy as np

from sparkext.kernels.arena.queues import append
from sparkext.kernels.arena.room import allocate, release
from sparkext.kernels.arena.tables import HASH, find_first
from sparkext.kernels.arena.words import hashed, is_before
from sparkext.kernels.columns.buffers import Int64Array, UInt8Array
from sparkext.kernels.runtime.jit import inlined


@inlined
def hash_row(arena: Int64Array, row: int, width: int) -> int:
    """Return a hash of all words of a row."""
    so_far = np.int64(0)
    for place in range(row, row + width + 1):
        so_far = hashed(so_far, arena[place])
    return so_far


@inlined
def copy_row(arena: Int64Array, source: int, target: int, width: int) -> None:
    """Copy a row to another address."""
    for place in range(width + 1):
        arena[target + place] = arena[source + place]


@inlined
def find_row(arena: Int64Array, table: int, hashed_row: int, row: int, width: int, at: int) -> int:
    """Return the record of a table that has an equal row at word `at`; 0 if there is none."""
    record = find_first(arena, table, hashed_row)
    while record != 0:
        if arena[record + HASH] == hashed_row:
            place = 0
            while place <= width and arena[record + at + place] == arena[row + place]:
                place += 1
            if place > width:
                return record
        record = arena[record]
    return 0


@inlined
def is_row_before(
    arena: Int64Array, one: int, two: int, width: int, orders: int, starts: Int64Array, data: UInt8Array
) -> bool:
    """Return whether a row is before another: by the first value, then the next, nulls first.

    `orders`: the address of the order of each value (see `words.is_before`).
    """
    for place in range(width):
        null, other = (arena[one] >> place) & 1, (arena[two] >> place) & 1
        if null != other:
            return null > other
        value, compared = arena[one + 1 + place], arena[two + 1 + place]
        if value != compared and null == 0:
            return is_before(value, compared, arena[orders + place], starts, data)
    return False


@inlined
def _sift(
    arena: Int64Array,
    heap: int,
    place: int,
    count: int,
    width: int,
    orders: int,
    starts: Int64Array,
    data: UInt8Array,
) -> None:
    row = arena[heap + place]
    while 2 * place + 1 < count:
        child = 2 * place + 1
        if child + 1 < count and is_row_before(
            arena, arena[heap + child], arena[heap + child + 1], width, orders, starts, data
        ):
            child += 1
        if not is_row_before(arena, row, arena[heap + child], width, orders, starts, data):
            break
        arena[heap + place] = arena[heap + child]
        place = child
    arena[heap + place] = row


@inlined
def sort_rows(
    arena: Int64Array, rows: int, count: int, width: int, orders: int, starts: Int64Array, data: UInt8Array
) -> None:
    """Sort the `count` addresses of rows from word `rows` on by the values of the rows: a heap sort."""
    for place in range(count // 2 - 1, -1, -1):
        _sift(arena, rows, place, count, width, orders, starts, data)
    for last in range(count - 1, 0, -1):
        row = arena[rows]
        arena[rows] = arena[rows + last]
        arena[rows + last] = row
        _sift(arena, rows, 0, last, width, orders, starts, data)


@inlined
def queued(arena: Int64Array, time: int, epsilons: int, row: int, width: int) -> int:
    """Return a queue record of an instant and a copy of a row: [next, timestamp, number of ε after it, row]."""
    record = allocate(arena, width + 4)
    arena[record + 1] = time
    arena[record + 2] = epsilons
    copy_row(arena, row, record + 3, width)
    return record


@inlined
def copy_all(arena: Int64Array, source: int, target: int, width: int) -> None:
    """Append copies of all records of queue `source`, which `queued` has made, to queue `target`."""
    record = arena[source]
    while record != 0:
        append(arena, target, queued(arena, arena[record + 1], arena[record + 2], record + 3, width))
        record = arena[record]


@inlined
def release_queued(arena: Int64Array, record: int, width: int) -> None:
    """Release a record made by `queued`."""
    release(arena, record, width + 4)
