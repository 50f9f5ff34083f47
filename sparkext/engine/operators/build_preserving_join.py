"""Right and full joins: every build row is emitted, even if no probe row matches it.

Spark shuffles the ids of build rows together with the probe rows. Each build row is owned by the one task that receives
all probe rows that may match it. The leading columns identify the kind of row (`PipelineSpec.owner_columns`):

    owner  …  probe columns
    null      1   "a"           a probe row, joined when it is processed
    7         -   -             build row 7 is owned by this task: emitted in `finish`, unless it was matched
    -1        2   "b"           a probe row that another task joins: it only marks its matches here
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

import numpy as np

from sparkext.build_sides.index_store import BuildSide
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.operators.join import Join
from sparkext.engine.operators.join_matches import Lookup, split_into_pieces
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.indexes.matches import Matches, mark_matched
from sparkext.kernels.runtime.jit import freeze
from sparkext.plans.pipeline.spec import MARKS, PROBE, ColumnRef, PipelineSpec
from sparkext.rows.row_set import RowSet, SourceRows

_OWNER = ColumnRef(PROBE, 0)
_PROBE_ROW = -2
_NO_ROWS = freeze(np.empty(0, dtype=np.int64))


class BuildPreservingJoin(Join):
    """A right or full join, which is always the first join of a pipeline."""

    def __init__(self, spec: PipelineSpec, build: BuildSide) -> None:
        """Bind the join to its build side. The task owns no build rows yet."""
        super().__init__(spec.joins[0], build, 1)
        self._owner_columns = spec.owner_columns
        self._owned_by = spec.owned_by
        self._owned: list[Int64Array] = []
        self._no_probe: list[Column] = []
        self._was_matched = np.zeros(build.rows, dtype=np.uint8)
        self._overlap = bool(spec.joins[0].ranges)

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the results of the probe rows, and record the build rows that this task owns."""
        owners = rows.gather(_OWNER)
        columns = [rows.columns[PROBE][number] for number in range(self._owner_columns, len(rows.columns[PROBE]))]
        probe = RowSet(rows.length, (columns,), rows.rows)
        if owners.null_count < len(owners):
            numbers = owners.fill_null(_PROBE_ROW).to_numpy(zero_copy_only=False)
            self._owned.append(numbers[numbers >= 0])
            self._no_probe = [Column.of(column.take(_NO_ROWS, missing=False)) for column in columns]
            self._mark(probe.picked(np.flatnonzero(numbers == MARKS)), budget)
            probe = probe.picked(np.flatnonzero(numbers == _PROBE_ROW))
        if probe.length:
            yield from super().process(probe, budget)

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit this task's unmatched build rows, with nulls for the probe side."""
        if not self._owned:
            return
        rows = self._find_unmatched(np.concatenate(self._owned))
        start = 0
        while start < rows.size:
            length = min(budget.next().rows, rows.size - start)
            missing = SourceRows(freeze(np.full(length, -1, dtype=rows.dtype)), missing=True)
            build_rows = SourceRows(freeze(rows[start : start + length]))
            budget.observe(0, length)
            yield RowSet(length, (self._no_probe, self.columns), (missing, build_rows))
            start += length

    def _mark(self, rows: RowSet, budget: OperatorBudget) -> None:
        """Record the matches of these rows, without emitting them."""
        for piece in split_into_pieces(rows, self._matches.looked_up, budget) if rows.length else ():
            started = time.perf_counter()
            matches = self._matches.lookup(piece, budget)
            if isinstance(matches.pairs, Matches) and not matches.conditional:
                mark_matched(matches.pairs, self._was_matched, overlap=self._overlap)
                budget.add_time_since(started)
            else:
                budget.add_time_since(started)
                deque(self._emitted(piece, matches, budget), maxlen=0)

    def _emit_untested(self, rows: RowSet, matches: Lookup, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the matches, and record their build rows as matched."""
        if isinstance(matches, Matches):
            mark_matched(matches, self._was_matched, overlap=self._overlap)
            yield from super()._emit_untested(rows, matches, budget)
            return
        for pairs in super()._emit_untested(rows, matches, budget):
            self._note(pairs)
            yield pairs

    def _note(self, pairs: RowSet) -> None:
        """Record the build rows of these pairs as matched; -1 means no build row."""
        rows = pairs.rows[self._source].ids
        assert rows is not None, "pairs have a build row each"
        self._was_matched[rows[rows >= 0]] = 1

    def _find_unmatched(self, owners: Int64Array) -> RowIds:
        """Return the unmatched build rows among the rows that these values of the owner column denote."""
        owned = owners
        if self._owned_by is not None:  # owners are indexes of parts, not ids of build rows
            parts = self.columns[self._owned_by].take(None, missing=False).to_numpy(zero_copy_only=False)
            owned = np.flatnonzero(np.isin(parts, owners))
        rows: RowIds = owned[self._was_matched[owned] == 0].astype(row_id_dtype(self._build.rows))
        return rows
