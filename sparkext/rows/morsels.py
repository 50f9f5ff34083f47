"""Input batches become morsels: Spark's batch size is not the pipeline's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from sparkext.shared import BATCH_GROWTH, FIRST_BATCH_ROWS

MAX_MORSEL_BYTES = 64 << 20
"""Input bytes after which a morsel is closed early: wide rows would otherwise pile up unseen by the controller."""


def morsels(batches: Iterable[pa.RecordBatch], max_rows: int) -> Iterator[pa.RecordBatch]:
    """Coalesce small batches and split large ones, to at most `max_rows` rows; never yield an empty morsel.

    The first morsel is small and later ones grow, so that a query with a LIMIT sees its rows early.
    """
    target = min(FIRST_BATCH_ROWS, max_rows)
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, max_rows):
            piece = batch.slice(start, max_rows)
            if waiting and (rows + piece.num_rows > max_rows or size + piece.nbytes > MAX_MORSEL_BYTES):
                yield combined(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
            if rows >= target:
                yield combined(waiting)
                waiting, rows, size = [], 0, 0
                target = min(target * BATCH_GROWTH, max_rows)
    if waiting:
        yield combined(waiting)


def within_bytes(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch, without a copy, into pieces of at most `limit` bytes, or of one row where that has more."""

    def size(start: int, stop: int) -> int:
        return int(batch.slice(start, stop - start).nbytes)

    for start, stop, _ in ranges_within(size, 0, batch.num_rows, limit):
        yield batch.slice(start, stop - start)


def ranges_within(size: Callable[[int, int], int], start: int, stop: int, limit: int) -> Iterator[tuple[int, int, int]]:
    """Cut a range of rows into those of at most `limit` bytes, or of one row where that has more.

    `size` tells the bytes of a range, which is asked of each once; yields start, stop and bytes.
    """
    found = size(start, stop)
    if stop - start <= 1 or found <= limit:
        yield start, stop, found
        return
    half = (start + stop) // 2
    yield from ranges_within(size, start, half, limit)
    yield from ranges_within(size, half, stop, limit)


def combined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches, of which there is one at least, as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
