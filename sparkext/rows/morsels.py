"""Regroups input batches into morsels of the pipeline's own size, independent of Spark's batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from sparkext.jvm_constants import BATCH_GROWTH, FIRST_BATCH_ROWS
from sparkext.rows.batching import Batcher

MAX_MORSEL_BYTES = 64 << 20
"""Input bytes after which a morsel is closed early: the controller would not notice accumulating wide rows."""


def form_morsels(batches: Iterable[pa.RecordBatch], max_rows: int) -> Iterator[pa.RecordBatch]:
    """Coalesce small batches and split large ones, to at most `max_rows` rows; never yield an empty morsel.

    The first morsel is small and later ones grow, so that a query with a LIMIT receives its rows early.
    """
    target = min(FIRST_BATCH_ROWS, max_rows)
    waiting = Batcher[pa.RecordBatch](
        lambda piece: (piece.num_rows, piece.nbytes), lambda: (max_rows, MAX_MORSEL_BYTES)
    )
    for batch in batches:
        for start in range(0, batch.num_rows, max_rows):
            if closed := waiting.add(batch.slice(start, max_rows)):
                yield combine_batches(closed)
            if waiting.totals[0] >= target:
                yield combine_batches(waiting.take())
                target = min(target * BATCH_GROWTH, max_rows)
    if closed := waiting.take():
        yield combine_batches(closed)


def split_by_bytes(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Split a batch, without a copy, into pieces of at most `limit` bytes, or of a single larger row."""

    def size(start: int, stop: int) -> int:
        return int(batch.slice(start, stop - start).nbytes)

    for start, stop, _ in split_range_by_bytes(size, 0, batch.num_rows, limit):
        yield batch.slice(start, stop - start)


def split_range_by_bytes(
    size: Callable[[int, int], int], start: int, stop: int, limit: int
) -> Iterator[tuple[int, int, int]]:
    """Split a range of rows into ranges of at most `limit` bytes, or of a single larger row.

    `size` returns the bytes of a range; it is called once per range. Yields start, stop and bytes.
    """
    total = size(start, stop)
    if stop - start <= 1 or total <= limit:
        yield start, stop, total
        return
    half = (start + stop) // 2
    yield from split_range_by_bytes(size, start, half, limit)
    yield from split_range_by_bytes(size, half, stop, limit)


def combine_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches, at least one, as one batch."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
