"""What a batch has brought to a slot of a stream join: the rows of each fragment, and what is told of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from sparkext.build_sides.rows_on_disk import collected_rows
from sparkext.exchange.cells import rows_of
from sparkext.rows.collected import CollectedRows
from sparkext.rows.contiguous import contiguous
from sparkext.rows.fingerprints import row_hashes
from sparkext.state.segments import SegmentInfo
from sparkext.worker.stream_cells_task import NO_FRAGMENT
from sparkext.worker.stream_join import StreamJoin

_BATCH_BITS = 32


class ArrivedRows:
    """The cells of a slot, decoded.

    `slots` has the number of the slot. If no task has sent anything, not even that, no slot has got anything, and any
    stands for all of them.
    """

    def __init__(self, join: StreamJoin, batch: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Take all cells."""
        self._join = join
        self._rows: dict[tuple[int, int], pa.Table] = {}
        self._checksums: dict[tuple[int, int], int] = defaultdict(int)
        self.slots: Sequence[int] = range(join.slots)
        collected: dict[tuple[int, int], CollectedRows] = {}
        for cells in batches:
            _, sides, fragments, checksums, content = cells.columns
            for number in range(cells.num_rows):
                place = sides[number].as_py(), fragments[number].as_py()
                if place[1] == NO_FRAGMENT:
                    self.slots = [checksums[number].as_py()]
                    continue
                self._checksums[place] += checksums[number].as_py()
                if place not in collected:
                    collected[place] = collected_rows()
                for rows in rows_of(content[number].as_buffer()):
                    collected[place].add((0, 0), rows)
        for place, kept in collected.items():
            with kept:
                table = kept.table(join.sides[place[0]].sent)
                self._rows[place] = _numbered(table, batch) if join.sides[place[0]].numbered else table

    def rows(self, side: int, fragment: int) -> pa.Table:
        """Return the rows of a fragment, as they are stored."""
        found = self._rows.get((side, fragment))
        return self._join.sides[side].schema.empty_table() if found is None else found

    def info(self, side: int, fragment: int) -> SegmentInfo:
        """Describe the rows of a fragment. Those that are numbered here have other fingerprints than they came with."""
        stored = self._join.sides[side]
        checksum = None if stored.numbered else self._checksums.get((side, fragment), 0) % (1 << 64)
        return stored.info(self.rows(side, fragment), checksum)

    def bytes(self, side: int) -> int:
        """Return what the first fragment of a side takes in memory."""
        return int(self.rows(side, 0).nbytes)


def _numbered(table: pa.Table, batch: int) -> pa.Table:
    """Give each row a number, after those of all batches before.

    A task that runs again numbers the same rows alike, in whichever order they come, as far as they can be told apart.
    """
    hashes = row_hashes([contiguous(column) for column in table.columns], table.num_rows)
    order = np.argsort(hashes, kind="stable")
    numbers = np.arange(table.num_rows, dtype=np.int64) + (batch << _BATCH_BITS)
    return table.take(pa.array(order)).append_column("row", pa.array(numbers))
