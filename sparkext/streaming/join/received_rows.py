"""The rows that a partition of a stream join receives in a batch, by fragment, with metadata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from sparkext.build_sides.rows_on_disk import create_row_collector
from sparkext.rows.collected import CollectedRows
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.fingerprints import hash_row_contents
from sparkext.shuffle.blocks import read_frames
from sparkext.shuffle.packed_rows import BlockHeader, RowUnpacker
from sparkext.streaming.join.description import StreamJoin
from sparkext.streaming.state.segments import SegmentInfo

_BATCH_BITS = 32


class ReceivedRows:
    """The received blocks of a partition, decoded.

    `partitions` contains the index of the partition. If no task has sent even the index, no partition has received
    rows, and `partitions` is the range of all indexes.
    """

    def __init__(self, join: StreamJoin, batch: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Read all blocks."""
        self._join = join
        self._rows: dict[tuple[int, int], pa.Table] = {}
        self._checksums: dict[tuple[int, int], int] = defaultdict(int)
        self.partitions: Sequence[int] = range(join.partitions)
        collected: dict[tuple[int, int], CollectedRows] = {}
        unpackers = [RowUnpacker(side.sent) for side in join.sides]
        for tag, block in read_frames(batches):
            if tag < 0:
                self.partitions = [-1 - tag]
                continue
            fragment, side = divmod(tag, 2)
            self._checksums[side, fragment] += BlockHeader.of(block).note
            if (side, fragment) not in collected:
                collected[side, fragment] = create_row_collector()
            collected[side, fragment].add((0, 0), unpackers[side].unpack(block))
        for fragment_id, collector in collected.items():
            with collector:
                table = collector.table(join.sides[fragment_id[0]].sent)
                self._rows[fragment_id] = _number_rows(table, batch) if join.sides[fragment_id[0]].numbered else table

    def rows(self, side: int, fragment: int) -> pa.Table:
        """Return the rows of a fragment in the stored schema."""
        table = self._rows.get((side, fragment))
        return self._join.sides[side].schema.empty_table() if table is None else table

    def info(self, side: int, fragment: int) -> SegmentInfo:
        """Return the metadata of a fragment.

        Numbering rows changes their fingerprints, so the checksum is computed again for a numbered side.
        """
        stored = self._join.sides[side]
        checksum = None if stored.numbered else self._checksums.get((side, fragment), 0) % (1 << 64)
        return stored.info(self.rows(side, fragment), checksum)

    def bytes(self, side: int) -> int:
        """Return the bytes in memory of the first fragment of a side."""
        return int(self.rows(side, 0).nbytes)


def _number_rows(table: pa.Table, batch: int) -> pa.Table:
    """Add a column of row numbers, all larger than the row numbers of earlier batches.

    A task that runs again assigns the same numbers, even if the rows are in another order. Identical rows may exchange
    their numbers.
    """
    hashes = hash_row_contents([make_contiguous(column) for column in table.columns], table.num_rows)
    order = np.argsort(hashes, kind="stable")
    numbers = np.arange(table.num_rows, dtype=np.int64) + (batch << _BATCH_BITS)
    return table.take(pa.array(order)).append_column("row", pa.array(numbers))
