"""States of relations, which are bags of rows: the multiplicity (weight) of each row, and its change at an instant.

changes   [next, hash, next changed, weight, row]      a weight of 0 is no change
all rows  [next, hash, weight, chain, row]
sides     [next, hash, left, right, row]               set operations: the multiplicity follows from both sides
parts     [next, hash, queue, row]                     a queue for each row
"""

from __future__ import annotations

import numpy as np

from sparkext.kernels.arena.chains import CHAIN_WORDS, chain, unchain
from sparkext.kernels.arena.queues import QUEUE_WORDS, append
from sparkext.kernels.arena.room import allocate, allocate_zeros, release
from sparkext.kernels.arena.rows import copy_row, find_row, hash_row, queued, sort_rows
from sparkext.kernels.arena.tables import HASH, RECORD_WORDS, link, unlink
from sparkext.kernels.columns.buffers import Int64Array, UInt8Array
from sparkext.kernels.runtime.jit import inlined

DISTINCT, UNION, EXCEPT, EXCEPT_ALL, INTERSECT, INTERSECT_ALL = range(6)
BAG_WORDS = 3
"""Number of words before the chains in the records of a bag."""

_WEIGHT = 2
_CHANGED, _CHANGE, _CHANGES_ROW = 2, 3, 4
_ALL_ROW = BAG_WORDS + CHAIN_WORDS
_LEFT, _RIGHT, _SIDES_ROW = 2, 3, 4
_PARTS_ROW = RECORD_WORDS + QUEUE_WORDS


@inlined
def _new_record(arena: Int64Array, table: int, hashed_row: int, row: int, width: int, at: int, words: int) -> int:
    """Add a record of `words` words to a table and return it: a copy of a row at word `at`, zeros elsewhere."""
    record = allocate_zeros(arena, words)
    arena[record + HASH] = hashed_row
    copy_row(arena, row, record + at, width)
    link(arena, table, record)
    return record


@inlined
def record_of(arena: Int64Array, table: int, row: int, width: int, at: int, words: int) -> int:
    """Return the record of a row, which is at word `at` of its `words` words. A new record has zeros elsewhere."""
    hashed_row = hash_row(arena, row, width)
    record = find_row(arena, table, hashed_row, row, width, at)
    return _new_record(arena, table, hashed_row, row, width, at, words) if record == 0 else record


@inlined
def _emit_sorted(
    arena: Int64Array,
    rows: int,
    count: int,
    back: int,
    sign: int,
    width: int,
    orders: int,
    starts: Int64Array,
    data: UInt8Array,
    queue: int,
    time: int,
    epsilons: int,
) -> None:
    """Append the rows at the `count` addresses from word `rows` on to a queue, in order.

    Each row is appended `sign` * weight times; its weight is `back` words before the row.
    """
    sort_rows(arena, rows, count, width, orders, starts, data)
    for place in range(count):
        row = arena[rows + place]
        for _ in range(sign * arena[row - back]):
            append(arena, queue, queued(arena, time, epsilons, row, width))


@inlined
def note_change(arena: Int64Array, table: int, changed: int, weight: int, row: int, width: int) -> None:
    """Add `weight` (maybe negative) to the change of a row. `changed`: the word with the first changed record."""
    hashed_row = hash_row(arena, row, width)
    record = find_row(arena, table, hashed_row, row, width, _CHANGES_ROW)
    if record != 0:
        arena[record + _CHANGE] += weight
        return
    record = _new_record(arena, table, hashed_row, row, width, _CHANGES_ROW, _CHANGES_ROW + 1 + width)
    arena[record + _CHANGED] = arena[changed]
    arena[changed] = record
    arena[record + _CHANGE] = weight


@inlined
def emit_changes(
    arena: Int64Array,
    table: int,
    changed: int,
    sign: int,
    width: int,
    orders: int,
    starts: Int64Array,
    data: UInt8Array,
    queue: int,
    time: int,
    epsilons: int,
) -> None:
    """Append the rows that were added (`sign` 1) or removed (-1) to a queue, in order, and drop all changes."""
    most = arena[table + 2]
    if most == 0:
        return
    rows = allocate(arena, most)
    count = np.int64(0)
    record = arena[changed]
    while record != 0:
        if sign * arena[record + _CHANGE] > 0:
            arena[rows + count] = record + _CHANGES_ROW
            count += 1
        record = arena[record + _CHANGED]
    back = _CHANGES_ROW - _CHANGE
    _emit_sorted(arena, rows, count, back, sign, width, orders, starts, data, queue, time, epsilons)
    release(arena, rows, most)
    record = arena[changed]
    while record != 0:
        arena[arena[table] + (arena[record + HASH] & arena[table + 1])] = 0
        following = arena[record + _CHANGED]
        release(arena, record, _CHANGES_ROW + 1 + width)
        record = following
    arena[changed] = 0
    arena[table + 2] = 0


@inlined
def add_to_bag(arena: Int64Array, table: int, weight: int, row: int, width: int, at: int) -> int:
    """Add `weight` (maybe negative) to the weight of a row.

    Return the record if it is new, the negative record if its weight is now 0, and 0 otherwise. The caller drops a
    record of weight 0. The row is at word `at` of a record, after its chains.
    """
    hashed_row = hash_row(arena, row, width)
    record = find_row(arena, table, hashed_row, row, width, at)
    if record != 0:
        arena[record + _WEIGHT] += weight
        return -record if arena[record + _WEIGHT] == 0 else np.int64(0)
    record = _new_record(arena, table, hashed_row, row, width, at, at + 1 + width)
    arena[record + _WEIGHT] = weight
    return record


@inlined
def drop_from_bag(arena: Int64Array, table: int, record: int, width: int, at: int) -> None:
    """Drop a record of weight 0, which has been removed from its chains."""
    unlink(arena, table, record)
    release(arena, record, at + 1 + width)


@inlined
def keep_row(arena: Int64Array, table: int, index: int, weight: int, row: int, width: int) -> None:
    """Add `weight` (maybe negative) to the weight of a row; `index` is a chain of all rows."""
    record = add_to_bag(arena, table, weight, row, width, _ALL_ROW)
    if record > 0:
        chain(arena, index, record, BAG_WORDS, 0, 0)
    elif record < 0:
        unchain(arena, index, -record, BAG_WORDS)
        drop_from_bag(arena, table, -record, width, _ALL_ROW)


@inlined
def emit_all(
    arena: Int64Array,
    table: int,
    index: int,
    width: int,
    orders: int,
    starts: Int64Array,
    data: UInt8Array,
    queue: int,
    time: int,
    epsilons: int,
) -> None:
    """Append all rows of a bag to a queue, in order."""
    count = arena[table + 2]
    if count == 0:
        return
    rows = allocate(arena, count)
    record = arena[arena[index]]
    for place in range(count):
        arena[rows + place] = record + _ALL_ROW
        record = arena[record + BAG_WORDS]
    back = _ALL_ROW - _WEIGHT
    _emit_sorted(arena, rows, count, back, 1, width, orders, starts, data, queue, time, epsilons)
    release(arena, rows, count)


@inlined
def _combine_multiplicities(op: int, left: int, right: int) -> int:
    """Return the multiplicity of a row in the result of a set operation."""
    if op == DISTINCT:
        return np.int64(left > 0)
    if op == UNION:
        return np.int64(left + right > 0)
    if op == EXCEPT:
        return np.int64(left > 0 and right == 0)
    if op == INTERSECT:
        return np.int64(left > 0 and right > 0)
    return max(left - right, 0) if op == EXCEPT_ALL else min(left, right)


@inlined
def count_side(arena: Int64Array, table: int, op: int, side: int, weight: int, row: int, width: int) -> int:
    """Add `weight` to the multiplicity of a row on one side; return the change of its multiplicity in the result."""
    record = record_of(arena, table, row, width, _SIDES_ROW, _SIDES_ROW + 1 + width)
    was = _combine_multiplicities(op, arena[record + _LEFT], arena[record + _RIGHT])
    arena[record + _LEFT + side] += weight
    now = _combine_multiplicities(op, arena[record + _LEFT], arena[record + _RIGHT])
    if arena[record + _LEFT] == 0 and arena[record + _RIGHT] == 0:
        unlink(arena, table, record)
        release(arena, record, _SIDES_ROW + 1 + width)
    return now - was


@inlined
def take_rows(arena: Int64Array, table: int, width: int, queue: int) -> None:
    """Empty a table of sides, and append its rows to a queue."""
    for bucket in range(arena[table], arena[table] + arena[table + 1] + 1):
        while arena[bucket] != 0:
            record = arena[bucket]
            arena[bucket] = arena[record]
            append(arena, queue, queued(arena, 0, 0, record + _SIDES_ROW, width))
            release(arena, record, _SIDES_ROW + 1 + width)
    arena[table + 2] = 0


@inlined
def empty_bag(arena: Int64Array, table: int, width: int, at: int) -> None:
    """Drop all records of a bag, which have been removed from their chains."""
    for bucket in range(arena[table], arena[table] + arena[table + 1] + 1):
        while arena[bucket] != 0:
            record = arena[bucket]
            arena[bucket] = arena[record]
            release(arena, record, at + 1 + width)
    arena[table + 2] = 0


@inlined
def part_of(arena: Int64Array, table: int, row: int, width: int) -> int:
    """Return the queue of a row."""
    return record_of(arena, table, row, width, _PARTS_ROW, _PARTS_ROW + 1 + width) + RECORD_WORDS
