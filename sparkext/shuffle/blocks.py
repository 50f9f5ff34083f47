"""Frames: blocks with their partition and a tag, in which rows are sent to other tasks.

Spark's shuffle transports a block, which has packed rows, as an ordinary column value, with a key that the shuffle maps
to the partition. Its handling of failures, retries and encryption therefore applies to blocks, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

BLOCK_BYTES = 4 << 20
"""Maximum size of the rows of a block in memory, unless a single row is larger."""

FRAMES = pa.schema([("partition", pa.int32()), ("tag", pa.int32()), ("block", pa.binary())])
"""The columns of frames: the partition, or a key that Spark's shuffle maps to it; the sender's tag; the block."""

DDL = "partition int, tag int, block binary"


def create_frame(partition: int, tag: int, block: pa.Buffer) -> pa.RecordBatch:
    """Return one frame. The block is not copied."""
    ends = pa.array([0, block.size], pa.int32()).buffers()[1]
    content = pa.BinaryArray.from_buffers(pa.binary(), 1, [None, ends, block])
    return pa.RecordBatch.from_arrays(
        [pa.array([partition], pa.int32()), pa.array([tag], pa.int32()), content], schema=FRAMES
    )


def create_index_frames(partition_keys: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yield a frame for each partition, without a block. Its tag is negative: `-1 - tag` is the partition's index.

    If Spark coalesces partitions, a task cannot derive the index from its own partition number.
    """
    for index, key in enumerate(partition_keys):
        yield create_frame(key, -1 - index, pa.py_buffer(b""))


def read_frames(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield the tag and the block of each frame. Blocks are not copied."""
    for batch in batches:
        _, tags, blocks = batch.columns
        for number in range(batch.num_rows):
            yield tags[number].as_py(), blocks[number].as_buffer()
