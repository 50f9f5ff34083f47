"""A semi-join that is there to save work alone: rows that it would drop, a later join drops as well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparkext.plans.operator_budget import OperatorBudget
from sparkext.rows.row_set import RowSet
from sparkext.worker.operators.join import Join

_SEEN_ROWS = 1 << 16
_MOST_KEPT = 0.5
"""Of the first rows. Chosen, not measured: rows are dropped in vain here where keys are not spread as expected."""


@dataclass
class Dropped:
    """What such a join has seen, over all threads; those that count at once may miss some, which matters little."""

    rows_in: int = 0
    rows_out: int = 0

    @property
    def too_few(self) -> bool:
        """Whether it drops too few rows to be worth it."""
        return self.rows_in >= _SEEN_ROWS and self.rows_out > _MOST_KEPT * self.rows_in


class DroppingJoin:
    """Drops rows without a match, until it turns out that most have one: then it lets all pass."""

    def __init__(self, join: Join, dropped: Dropped) -> None:
        """Go on with what others have seen."""
        self._join, self._dropped = join, dropped
        self.row_bytes = join.row_bytes

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit those of these rows that are kept."""
        if self._dropped.too_few:
            yield from _passed(rows, budget)
            return
        kept = 0
        for emitted in self._join.process(rows, budget):
            kept += emitted.length
            yield emitted
        self._dropped.rows_in += rows.length
        self._dropped.rows_out += kept

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit nothing: each row was decided when it came."""
        return iter(())


def _passed(rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
    start = 0
    while start < rows.length:
        some = rows.slice(start, min(budget.next().rows, rows.length - start))
        budget.observe(some.length, some.length)
        start += some.length
        yield some
