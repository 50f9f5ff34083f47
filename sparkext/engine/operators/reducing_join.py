"""An inner join that may switch to a reduced build side, without the build rows that later joins would drop.

Fan-out is expensive if later joins drop most of its pairs. If these joins only read this build side, they can be
evaluated once per build row instead of once per pair.

    probe ⋈ sales ⋈ buyers (of sales)   until the join has emitted as many rows as sales has
    probe ⋈ (sales ⋉ buyers) ⋈ buyers   from then on, if this drops at least half of sales
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
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.operators.join import Join
from sparkext.errors import BuildSideTooLargeError
from sparkext.kernels.columns.gather import Column, VarBytesOverflowError
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.runtime.jit import freeze
from sparkext.plans.pipeline.spec import JoinSpec, PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet

_PIECE_ROWS = 1 << 17
_SAMPLE_ROWS = 4096  # a sample of the build side, to decide whether a full reduction is worth trying
_MOST_KEPT = 0.5
"""If a larger fraction of the build side remains, a separate smaller index is not worth its memory."""


class ReducingJoin:
    """Join `number` of a pipeline. The joins `reducers` can reduce its build side (see `plans.adaptive.join_order`).

    `recipe`: the recipe of the build side's index. `at_once`: reduce before the first row, whatever fraction remains.
    Reductions are recorded in `metrics`.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        number: int,
        reducers: Sequence[int],
        builds: Sequence[BuildSide],
        recipe: IndexRecipe,
        input_sources: int,
        metrics: TaskMetrics,
        at_once: bool = False,
    ) -> None:
        """Begin with the complete build side."""
        self._spec, self._number, self._input_sources = spec.joins[number], number, input_sources
        self._build = builds[number]
        self._reducing = [(other, _as_semi_join(spec.joins[other]), builds[other]) for other in reducers]
        self._recipe = recipe
        self._metrics = metrics
        self._at_once = at_once
        self._join = Join(self._spec, self._build, number + 1, input_sources)
        self._emitted = 0
        self._decided = False
        self._turn = Lock()

    @property
    def row_bytes(self) -> float:
        """Bytes per output row."""
        return self._join.row_bytes

    @property
    def columns(self) -> Mapping[int, Column]:
        """The build columns that later nodes may read."""
        return self._build.columns

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the results of the join for these rows."""
        if not self._decided and (self._at_once or self._emitted >= self._build.rows):
            with self._turn:  # other threads wait: the rows that they would emit in the meantime cost more
                if not self._decided:
                    started = time.perf_counter()
                    self._reduce(budget)
                    self._decided = True
                    budget.add_time_since(started)
        for emitted in self._join.process(rows, budget):
            self._emitted += emitted.length
            yield emitted

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit nothing: `process` emits all results."""
        return iter(())

    def _reduce(self, budget: OperatorBudget) -> None:
        """Switch to the remaining build rows, if they are few and there is memory for a copy."""
        all_rows = RowSet.of_source(self._number + 1, self._build.columns, self._build.rows)
        is_sampled = all_rows.length > _SAMPLE_ROWS and not self._at_once
        if is_sampled and self._find_remaining(all_rows.thin_out(_SAMPLE_ROWS)).size > _MOST_KEPT * _SAMPLE_ROWS:
            return
        rows = self._find_remaining(all_rows)
        is_small = rows.size <= _MOST_KEPT * self._build.rows
        size = rows.size * sum(column.value_bytes for column in self._build.columns.values())
        if not (is_small or self._at_once) or size > budget.usable_bytes():
            return
        try:
            build = index_in_memory(rows.size, self._copy_columns(rows), self._recipe)
        except (BuildSideTooLargeError, VarBytesOverflowError):
            return
        self._join = Join(self._spec, build, self._number + 1, self._input_sources)
        self._metrics.reduced.append((self._number, int(rows.size)))

    def _find_remaining(self, rows: RowSet) -> RowIds:
        """Return the ids of the given build rows that no reducer drops, in order."""
        source = self._number + 1
        pieces = [rows]
        for other, spec, build in self._reducing:
            join = Join(spec, build, other + 1)
            budget = OperatorBudget.aside(join.row_bytes, _PIECE_ROWS)
            pieces = [emitted for piece in pieces for emitted in join.process(piece, budget)]
        ids = [piece.rows[source].ids for piece in pieces]
        positions = [
            np.arange(piece.length) if piece_ids is None else piece_ids
            for piece_ids, piece in zip(ids, pieces, strict=True)
        ]
        dtype = row_id_dtype(self._build.rows)
        remaining: RowIds = freeze(np.concatenate([np.empty(0, dtype), *positions]).astype(dtype))
        return remaining

    def _copy_columns(self, rows: RowIds) -> list[pa.Array]:
        """Return copies of the required columns by column number; other columns are empty placeholders."""
        columns = self._build.columns
        required = {*self._recipe.indexed, *self._recipe.gathered}
        return [
            columns[number].take(rows, missing=False) if number in required else pa.nulls(0)
            for number in range(max(required, default=-1) + 1)
        ]


def _as_semi_join(join: JoinSpec) -> JoinSpec:
    """Return the semi-join that drops the same rows as an inner join; other joins unchanged."""
    return replace(join, how="semi") if join.how == "inner" else join
