"""The worker function that merges the results of split order keys: one sorted run from each sending partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkext.build_sides.rows_on_disk import create_row_collector
from sparkext.kernels.runtime.jit import freeze
from sparkext.memory.probes import Tasks
from sparkext.shuffle.blocks import read_frames
from sparkext.shuffle.packed_rows import BlockHeader, RowUnpacker
from sparkext.streaming.ordered.description import OrderedTask
from sparkext.streaming.ordered.order_task import METRICS, OutputConverter
from sparkext.streaming.ordered.partition import RowsInOrder
from sparkext.streaming.progress import PROGRESS


@dataclass(frozen=True)
class MergeTask(OrderedTask):
    """Merges the blocks of one partition."""

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Emit the merged results and the metrics of one partition."""
        ordered, converter = self.ordered, OutputConverter(self.ordered)
        rows_out = 0
        with create_row_collector() as collected:
            sizes: dict[int, int] = defaultdict(int)
            unpacker, metrics = RowUnpacker(ordered.merged_schema), RowUnpacker(METRICS)
            for writer, block in read_frames(batches):
                if writer < 0:
                    yield converter.progress(metrics.unpack(block).column(PROGRESS)[0].as_py())
                else:
                    header = BlockHeader.of(block)
                    sizes[writer] += header.rows
                    collected.add((writer, header.note), unpacker.unpack(block))
            results = collected.table(ordered.merged_schema)
        starts = np.cumsum([0, *(sizes[writer] for writer in sorted(sizes))], dtype=np.int64)
        order = ordered.result_order.order(results, freeze(starts))
        for piece in RowsInOrder(results, order).pieces(len(ordered.result_schema)):
            rows_out += piece.num_rows
            yield converter.results(piece)
        yield converter.progress({"rows_out": rows_out})
