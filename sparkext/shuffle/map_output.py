"""The file that a map task writes for Spark's shuffle: blocks, ordered by bucket.

    │ checksum │ bytes │ packed rows │  checksum │ bytes │ …
    └───── a block of bucket 0 ──────┘

A block does not contain its schema, which the reader and the writer know. A segment is a contiguous range of the file:
some buckets of some map tasks.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from sparkext.errors import BlockError
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.shuffle.checksum import checksum
from sparkext.kernels.shuffle.partition import PartitionOrder
from sparkext.memory.address_space import explain_mapping_errors
from sparkext.shuffle.packed_rows import BlockHeader, RowUnpacker, blocks_of
from sparkext.storage.spill import SpillBuffer

_HEADER = struct.Struct("<QQ")


class MapOutput:
    """Gathers the blocks of a task, and finally writes them ordered by bucket. It has to be closed.

    `most()`: maximum bytes in memory, None without limit; the rest is spilled to an unnamed file on the disk of
    `folder`. `sizes`: bytes in memory of each bucket's rows, int64[buckets].
    """

    def __init__(self, buckets: int, most: Callable[[], int | None], folder: Path) -> None:
        """Begin without blocks."""
        self._blocks = SpillBuffer[pa.Buffer](most, folder)
        self.sizes = np.zeros(buckets, dtype=np.int64)

    def close(self) -> None:
        """Close the spill files."""
        self._blocks.close()

    def add(self, rows: pa.RecordBatch, order: PartitionOrder) -> None:
        """Add rows; `order` has the row ids of each bucket."""
        for bucket, block in blocks_of(rows, order):
            self.sizes[bucket] += BlockHeader.of(block).size
            self._blocks.add((bucket, 0), block, block.size)

    def write(self, stream: BinaryIO) -> Int64Array:
        """Write all blocks; return the number of bytes of each bucket, int64[buckets]."""
        lengths = np.zeros_like(self.sizes)
        for (bucket, _), block in self._blocks.items():
            stream.write(_HEADER.pack(_compute_checksum(block), block.size))
            stream.write(block)
            lengths[bucket] += _HEADER.size + block.size
        return lengths


class Segment(NamedTuple):
    """A range of bytes in a file, which contains consecutive blocks."""

    path: str
    start: int
    size: int


def rows_of_segments(
    segments: list[Segment], schema: pa.Schema, read: Collection[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all blocks. If `read` is given, columns without a number in `read` are null.

    Consecutive segments of the same file share one mapping.

    Raises
    ------
    BlockError
        A block is damaged.
    """
    return RowUnpacker(schema, read).batches(_blocks_of_all(segments))


def _blocks_of_all(segments: list[Segment]) -> Iterator[pa.Buffer]:
    path, content = "", pa.py_buffer(b"")
    for segment in segments:
        if segment.path != path:
            path, content = segment.path, _map_segment(segment)
        yield from _blocks_of(segment, content)


def _blocks_of(segment: Segment, content: pa.Buffer) -> Iterator[pa.Buffer]:
    position, end = segment.start, segment.start + segment.size
    if end > content.size:
        raise BlockError(_describe_damage(segment, f"the file ends at byte {content.size}"))
    while position < end:
        if end - position < _HEADER.size:
            raise BlockError(_describe_damage(segment, f"the last {end - position} bytes are too few for a block"))
        expected, size = _HEADER.unpack(content.slice(position, _HEADER.size))
        position += _HEADER.size
        if size > end - position:
            raise BlockError(
                _describe_damage(
                    segment,
                    f"the block at {position - _HEADER.size} should have {size} bytes, but has {end - position}",
                )
            )
        message = content.slice(position, size)
        if _compute_checksum(message) != expected:
            raise BlockError(_describe_damage(segment, f"the checksum of the block at {position} does not match"))
        yield message
        position += size


def _map_segment(segment: Segment) -> pa.Buffer:
    try:
        with Path(segment.path).open("rb") as stream, explain_mapping_errors("rows from other tasks"):
            return pa.py_buffer(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))
    except (OSError, ValueError) as error:  # mmap rejects empty files
        raise BlockError(_describe_damage(segment, str(error))) from error


def _describe_damage(segment: Segment, problem: str) -> str:
    location = f"{segment.start} to {segment.start + segment.size} of {segment.path!r}"
    return f"blocks at bytes {location} cannot be read: {problem}"


def _compute_checksum(message: pa.Buffer) -> int:
    return checksum(np.frombuffer(message, np.uint8))
