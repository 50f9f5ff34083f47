"""The input and the output of a sink that holds rows, in pieces within its budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from sparkext.engine.operator_budget import OperatorBudget
from sparkext.plans.adaptive.output_size import Budget
from sparkext.plans.pipeline.spec import ColumnRef
from sparkext.rows.row_set import RowSet


def split_input(
    rows: RowSet, references: Sequence[ColumnRef], budget: OperatorBudget
) -> Iterator[tuple[RowSet, Budget]]:
    """Yield the rows in pieces of which these columns may be gathered, each with its budget."""
    start = 0
    while start < rows.length:
        most = budget.next()
        started = time.perf_counter()
        piece = rows.next_piece(start, most.rows, references, most.bytes)
        start += piece.length
        budget.add_time_since(started)
        yield piece, most


def emit_pieces(
    rows: int, create_piece: Callable[[int, Budget], pa.RecordBatch], budget: OperatorBudget
) -> Iterator[pa.RecordBatch]:
    """Emit `rows` held rows. `create_piece` returns one or more rows from a position on, within a budget."""
    start = 0
    while start < rows:
        most = budget.next()
        started = time.perf_counter()
        piece = create_piece(start, most)
        budget.observe(0, piece.num_rows, piece.nbytes)
        start += piece.num_rows
        budget.add_time_since(started)
        yield piece
