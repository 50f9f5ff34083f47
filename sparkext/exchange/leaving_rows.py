"""Rows of a task on their way to slots, gathered until they make cells of some size.

    batches ──▶ rows by slot ──▶ cells

They are put in order by slot all together, when there are enough: a cell is one range of them then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sparkext.exchange.cells import CELL_BYTES, cell_of
from sparkext.exchange.partitioning import Partitioning
from sparkext.memory.freed import FreeMemory, headroom_for
from sparkext.rows.morsels import combined, within_bytes
from sparkext.rows.taken import taken

_LEAST_BYTES = 32 << 20
_MOST_BYTES = 512 << 20
_BYTES_PER_SLOT = 2 << 20
_COPIES = 4
"""What rows take while they are put in order: they themselves, twice in order, and as cells."""
_SHARE_OF_HEADROOM = 0.25
_KEY_BYTES = 8


def leaving_cells(
    batches: Iterable[pa.RecordBatch], partitioning: Partitioning, task: int, free: FreeMemory
) -> Iterator[list[tuple[int, pa.Buffer]]]:
    """Yield cells with the numbers of their slots, many at a time. `task` is as in `Partitioning.order`."""
    for rows in gathered(batches, partitioning.table.slots, free):
        yield _cells(rows, partitioning, task)


def gathered(batches: Iterable[pa.RecordBatch], slots: int, free: FreeMemory) -> Iterator[pa.RecordBatch]:
    """Put batches together until they make cells of some size for each slot."""
    waiting: list[pa.RecordBatch] = []
    size = limit = 0
    for batch in batches:
        if waiting and size + gathered_bytes(batch) > limit:
            yield combined(waiting)
            waiting, size = [], 0
        if batch.num_rows:
            limit = limit if waiting else bytes_to_gather(slots, free)
            waiting.append(batch)
            size += gathered_bytes(batch)
    if waiting:
        yield combined(waiting)


def bytes_to_gather(slots: int, free: FreeMemory) -> int:
    """Return how many bytes make cells of some size for each slot, within a share of what memory this task has."""
    wanted = min(max(_LEAST_BYTES, slots * _BYTES_PER_SLOT), _MOST_BYTES)
    headroom = headroom_for(int(_COPIES * wanted / _SHARE_OF_HEADROOM), free)
    return wanted if headroom is None else min(wanted, int(headroom * _SHARE_OF_HEADROOM / _COPIES))


def gathered_bytes(batch: pa.RecordBatch) -> int:
    """Return what rows take that wait: hashes, lines and an order are made of their keys, which may be narrow."""
    return int(batch.nbytes + batch.num_rows * _KEY_BYTES)


def _cells(rows: pa.RecordBatch, partitioning: Partitioning, task: int) -> list[tuple[int, pa.Buffer]]:
    order = partitioning.order(partitioning.lines(rows)[1], task)
    in_order = taken(rows, order.rows)
    return [
        (slot, cell_of(piece))
        for slot, (start, stop) in enumerate(zip(order.starts[:-1].tolist(), order.starts[1:].tolist(), strict=True))
        if start < stop
        for piece in within_bytes(in_order.slice(start, stop - start), CELL_BYTES)
    ]
