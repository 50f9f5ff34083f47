"""An inner join that, once that pays, goes on without those build rows that joins behind it drop.

Fan-out is the dearer the less of it remains: where other joins look at this build side alone, they are asked once for
each of its rows, and not for each pair that has it.

    probe ⋈ sales ⋈ buyers (of sales)   until the join has emitted as many rows as sales has
    probe ⋈ (sales ⋉ buyers) ⋈ buyers   from then on, if that drops half of sales or more
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.errors import BuildSideTooLargeError
from sparkext.kernels.gather import Column, VarBytesOverflowError
from sparkext.kernels.jit import frozen
from sparkext.kernels.row_ids import RowIds, row_id_dtype
from sparkext.plans.operator_budget import OperatorBudget
from sparkext.plans.spec import JoinSpec, PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet
from sparkext.worker.operators.join import Join

_PIECE_ROWS = 1 << 17
_SAMPLE_ROWS = 4096  # of a build side, which tell whether to look at all
_MOST_KEPT = 0.5
"""Where more of the build side remains, a smaller index of its own is not worth its memory."""


class ReducingJoin:
    """Join number `number` of a pipeline, which the joins `reducers` reduce (see `plans.join_order.reducers`).

    `recipe` is that of its index. `at_once`: before the first row, and whatever remains. `metrics` is told.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        number: int,
        reducers: Sequence[int],
        builds: Sequence[BuildSide],
        recipe: IndexRecipe,
        before: int,
        metrics: TaskMetrics,
        at_once: bool = False,
    ) -> None:
        """Begin with the whole build side."""
        self._spec, self._number, self._before = spec.joins[number], number, before
        self._build = builds[number]
        self._reducing = [(other, _semi(spec.joins[other]), builds[other]) for other in reducers]
        self._recipe = recipe
        self._metrics = metrics
        self._at_once = at_once
        self._join = Join(self._spec, self._build, number + 1, before)
        self._emitted = 0
        self._decided = False
        self._turn = Lock()

    @property
    def row_bytes(self) -> float:
        """What a row of its output takes."""
        return self._join.row_bytes

    @property
    def columns(self) -> Mapping[int, Column]:
        """The columns of its build side that those after it may refer to."""
        return self._build.columns

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit what the join makes of these rows."""
        if not self._decided and (self._at_once or self._emitted >= self._build.rows):
            with self._turn:  # other threads wait: what they would emit meanwhile costs more
                if not self._decided:
                    started = time.perf_counter()
                    self._reduce(budget)
                    self._decided = True
                    budget.spent_since(started)
        for emitted in self._join.process(rows, budget):
            self._emitted += emitted.length
            yield emitted

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit nothing: each row was decided when it came."""
        return iter(())

    def _reduce(self, budget: OperatorBudget) -> None:
        """Go on with the rows that remain, if these are few and there is memory for a copy of them."""
        whole = RowSet.of_source(self._number + 1, self._build.columns, self._build.rows)
        is_sampled = whole.length > _SAMPLE_ROWS and not self._at_once
        if is_sampled and self._remaining(whole.thinned(_SAMPLE_ROWS)).size > _MOST_KEPT * _SAMPLE_ROWS:
            return
        rows = self._remaining(whole)
        few = rows.size <= _MOST_KEPT * self._build.rows
        size = rows.size * sum(column.value_bytes for column in self._build.columns.values())
        if not (few or self._at_once) or size > budget.usable_bytes():
            return
        try:
            build = index_in_memory(rows.size, self._taken(rows), self._recipe)
        except (BuildSideTooLargeError, VarBytesOverflowError):
            return
        self._join = Join(self._spec, build, self._number + 1, self._before)
        self._metrics.reduced.append((self._number, int(rows.size)))

    def _remaining(self, rows: RowSet) -> RowIds:
        """Return which of these build rows no join drops, in order."""
        source = self._number + 1
        left = [rows]
        for other, spec, build in self._reducing:
            join = Join(spec, build, other + 1)
            budget = OperatorBudget.aside(join.row_bytes, _PIECE_ROWS)
            left = [emitted for some in left for emitted in join.process(some, budget)]
        ids = [some.rows[source].ids for some in left]
        known = [np.arange(some.length) if found is None else found for found, some in zip(ids, left, strict=True)]
        dtype = row_id_dtype(self._build.rows)
        remaining: RowIds = frozen(np.concatenate([np.empty(0, dtype), *known]).astype(dtype))
        return remaining

    def _taken(self, rows: RowIds) -> list[pa.Array]:
        """Return the columns by number; empty ones stand for those that nobody fetches."""
        columns = self._build.columns
        wanted = {*self._recipe.indexed, *self._recipe.gathered}
        return [
            columns[number].take(rows, missing=False) if number in wanted else pa.nulls(0)
            for number in range(max(wanted, default=-1) + 1)
        ]


def _semi(join: JoinSpec) -> JoinSpec:
    """Return the join that tells for each row whether it is dropped."""
    return replace(join, how="semi") if join.how == "inner" else join
