"""A filter: keeps the rows that fulfil a condition."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.operators.join_matches import split_into_pieces
from sparkext.errors import ConditionError
from sparkext.expressions.arrow_evaluator import ExpressionError, holds, serialise_failing_values
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.pipeline.spec import ColumnRef
from sparkext.rows.row_set import RowSet

_ROW_ID_BYTES = 8


class Filter:
    """Emits the ids of rows for which `condition` is true; `sources` is the number of sources of its input.

    Raises
    ------
    ConditionError
        The condition fails on a row.
    """

    def __init__(self, condition: Expression, sources: int) -> None:
        """Bind the condition and collect the columns that it reads."""
        self._condition = condition
        self._columns = [ColumnRef(node.source, node.column) for node in condition.columns()]
        self.row_bytes = float(_ROW_ID_BYTES * sources)

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the rows that fulfil the condition."""
        for piece in split_into_pieces(rows, self._columns, budget):
            start = 0
            while start < piece.length:
                started = time.perf_counter()
                part = piece.slice(start, min(budget.next().rows, piece.length - start))
                row_numbers = self._find_fulfilling(part)
                budget.observe(part.length, row_numbers.size)
                budget.add_time_since(started)
                start += part.length
                if row_numbers.size:
                    yield part if row_numbers.size == part.length else part.picked(row_numbers)

    def _find_fulfilling(self, rows: RowSet) -> npt.NDArray[np.intp]:
        try:
            return np.flatnonzero(holds(self._condition, rows))
        except ExpressionError as error:
            raise ConditionError(
                f"the filter fails on {serialise_failing_values(self._condition, rows, error.row)}"
            ) from error

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit nothing: `process` emits all results."""
        return iter(())
