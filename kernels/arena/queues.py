"""Queues of records: [next, …]. A header is [first, last, records]."""

from __future__ import annotations

from sparkext.kernels.arena.room import release
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.runtime.jit import inlined, kernel

QUEUE_WORDS = 3


@inlined
def append(arena: Int64Array, queue: int, record: int) -> None:
    """Append a record."""
    arena[record] = 0
    if arena[queue] == 0:
        arena[queue] = record
    else:
        arena[arena[queue + 1]] = record
    arena[queue + 1] = record
    arena[queue + 2] += 1


@inlined
def pop(arena: Int64Array, queue: int) -> int:
    """Remove and return the first record. There has to be one."""
    record = arena[queue]
    arena[queue] = arena[record]
    arena[queue + 2] -= 1
    return record


@inlined
def move_all(arena: Int64Array, source: int, target: int) -> None:
    """Append all records of queue `source` to queue `target`; `source` is empty then."""
    if arena[source] != 0:
        if arena[target] == 0:
            arena[target] = arena[source]
        else:
            arena[arena[target + 1]] = arena[source]
        arena[target + 1] = arena[source + 1]
        arena[target + 2] += arena[source + 2]
        arena[source] = 0
        arena[source + 2] = 0


@inlined
def release_all(arena: Int64Array, queue: int, words: int) -> None:
    """Release all records of a queue, of `words` words each."""
    while arena[queue] != 0:
        release(arena, pop(arena, queue), words)


@kernel
def drain(arena: Int64Array, queue: int, words: int, out: Int64Array) -> None:
    """Move all records of a queue to `out`, int64[words - 1, records]: out[k, i] is word k + 1 of record i."""
    row = 0
    while arena[queue] != 0:
        record = pop(arena, queue)
        for place in range(1, words):
            out[place - 1, row] = arena[record + place]
        release(arena, record, words)
        row += 1
