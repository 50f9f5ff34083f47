"""A semi-join that only saves work: a later join would drop the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.operators.join import Join
from sparkext.rows.row_set import RowSet

_SEEN_ROWS = 1 << 16
_MOST_KEPT = 0.5
"""Limit of the matching rows, as a fraction of the first rows. Chosen without measurement; it detects unexpectedly
skewed or unselective keys."""


@dataclass
class DropCounters:
    """Counters of a `DroppingJoin`, shared by all threads. They are not locked: a lost update has little effect."""

    rows_in: int = 0
    rows_out: int = 0

    @property
    def too_few(self) -> bool:
        """Whether the join drops too few rows to pay off."""
        return self.rows_in >= _SEEN_ROWS and self.rows_out > _MOST_KEPT * self.rows_in


class DroppingJoin:
    """Drops rows without a match. If most of the first rows have a match, it passes on all later rows unchecked."""

    def __init__(self, join: Join, dropped: DropCounters) -> None:
        """Bind the join to its shared counters."""
        self._join, self._dropped = join, dropped
        self.row_bytes = join.row_bytes

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the matching rows."""
        if self._dropped.too_few:
            yield from _pass_unchecked(rows, budget)
            return
        rows_out = 0
        for emitted in self._join.process(rows, budget):
            rows_out += emitted.length
            yield emitted
        self._dropped.rows_in += rows.length
        self._dropped.rows_out += rows_out

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit nothing: `process` emits all results."""
        return iter(())


def _pass_unchecked(rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
    start = 0
    while start < rows.length:
        piece = rows.slice(start, min(budget.next().rows, rows.length - start))
        budget.observe(piece.length, piece.length)
        start += piece.length
        yield piece
