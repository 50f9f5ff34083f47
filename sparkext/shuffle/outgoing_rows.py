"""Outgoing rows of a task, gathered until they fill blocks of sufficient size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sparkext.memory.freed import FreeMemory, headroom_for
from sparkext.rows.batching import group_items
from sparkext.rows.morsels import combine_batches
from sparkext.shuffle.packed_rows import blocks_of
from sparkext.shuffle.partitioning import Partitioning

_LEAST_BYTES = 32 << 20
_MOST_BYTES = 512 << 20
_BYTES_PER_PARTITION = 2 << 20
_COPIES = 4
"""Copies of the rows that exist while they are sorted: the original, two sorted copies, and the blocks."""
_SHARE_OF_HEADROOM = 0.25
_KEY_BYTES = 8


def create_outgoing_blocks(
    batches: Iterable[pa.RecordBatch], partitioning: Partitioning, task: int, free: FreeMemory
) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield blocks, each with the index of its partition. `task` is as in `Partitioning.order`."""
    for rows in gather_batches(batches, partitioning.table.partitions, free):
        yield from blocks_of(rows, partitioning.order(partitioning.buckets(rows)[1], task))


def gather_batches(batches: Iterable[pa.RecordBatch], partitions: int, free: FreeMemory) -> Iterator[pa.RecordBatch]:
    """Combine batches until they fill blocks of sufficient size for each partition."""
    groups = group_items(
        (batch for batch in batches if batch.num_rows),
        lambda batch: (gathered_bytes(batch),),
        lambda: (bytes_to_gather(partitions, free),),
    )
    return map(combine_batches, groups)


def bytes_to_gather(partitions: int, free: FreeMemory) -> int:
    """Return the bytes that fill blocks of sufficient size for each partition, within a share of this task's memory."""
    target = min(max(_LEAST_BYTES, partitions * _BYTES_PER_PARTITION), _MOST_BYTES)
    headroom = headroom_for(int(_COPIES * target / _SHARE_OF_HEADROOM), free)
    return target if headroom is None else min(target, int(headroom * _SHARE_OF_HEADROOM / _COPIES))


def gathered_bytes(batch: pa.RecordBatch) -> int:
    """Return the memory of gathered rows in bytes, including their keys' hashes, buckets and sort order."""
    return int(batch.nbytes + batch.num_rows * _KEY_BYTES)
