"""Right and full joins: every build row comes out, also one that no probe row matches.

Spark shuffles ids of build rows along with the probe rows, so that each is owned by the one task which sees all probe
rows that may match it. The columns in front tell them apart (`PipelineSpec.owner_columns`):

    owner  …  probe columns
    null      1   "a"           a probe row: joined when it comes
    7         -   -             build row 7 is this task's: emitted when the join finishes, unless it was matched
    -1        2   "b"           a row that another task joins: its matches need not be emitted here
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

import numpy as np

from sparkext.build_sides.index_store import BuildSide
from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.gather import Column
from sparkext.kernels.jit import frozen
from sparkext.kernels.matches import Matches, mark_matched
from sparkext.kernels.row_ids import RowIds, row_id_dtype
from sparkext.plans.operator_budget import OperatorBudget
from sparkext.plans.spec import MARKS, PROBE, ColumnRef, PipelineSpec
from sparkext.rows.row_set import RowSet, SourceRows
from sparkext.worker.operators.join import Join
from sparkext.worker.operators.join_matches import Lookup, pieces

_OWNER = ColumnRef(PROBE, 0)
_PROBE_ROW = -2
_NO_ROWS = frozen(np.empty(0, dtype=np.int64))


class BuildPreservingJoin(Join):
    """The first join of a pipeline, where it is a right or a full one."""

    def __init__(self, spec: PipelineSpec, build: BuildSide) -> None:
        """Bind it to its build side, of which this task owns nothing yet."""
        super().__init__(spec.joins[0], build, 1)
        self._owner_columns = spec.owner_columns
        self._owned_by = spec.owned_by
        self._owned: list[Int64Array] = []
        self._no_probe: list[Column] = []
        self._was_matched = np.zeros(build.rows, dtype=np.uint8)
        self._overlap = bool(spec.joins[0].ranges)

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit what the join makes of the probe rows among these, and remember which build rows the task owns."""
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
        """Emit the build rows of this task that no probe row matched, with nulls for the probe side."""
        if not self._owned:
            return
        rows = self._unmatched(np.concatenate(self._owned))
        start = 0
        while start < rows.size:
            length = min(budget.next().rows, rows.size - start)
            missing = SourceRows(frozen(np.full(length, -1, dtype=rows.dtype)), missing=True)
            build_rows = SourceRows(frozen(rows[start : start + length]))
            budget.observe(0, length)
            yield RowSet(length, (self._no_probe, self.columns), (missing, build_rows))
            start += length

    def _mark(self, rows: RowSet, budget: OperatorBudget) -> None:
        """Remember what these rows match."""
        for piece in pieces(rows, self._matches.looked_up, budget) if rows.length else ():
            started = time.perf_counter()
            found = self._matches.lookup(piece, budget)
            if isinstance(found.pairs, Matches) and not found.conditional:
                mark_matched(found.pairs, self._was_matched, overlap=self._overlap)
                budget.spent_since(started)
            else:
                budget.spent_since(started)
                deque(self._emitted(piece, found, budget), maxlen=0)

    def _unconditional(self, rows: RowSet, found: Lookup, budget: OperatorBudget) -> Iterator[RowSet]:
        """Remember which build rows are emitted, too: all that are found."""
        if isinstance(found, Matches):
            mark_matched(found, self._was_matched, overlap=self._overlap)
            yield from super()._unconditional(rows, found, budget)
            return
        for pairs in super()._unconditional(rows, found, budget):
            self._note(pairs)
            yield pairs

    def _note(self, pairs: RowSet) -> None:
        """Remember that these build rows are emitted; -1 is none."""
        rows = pairs.rows[self._source].ids
        assert rows is not None, "pairs have a build row each"
        self._was_matched[rows[rows >= 0]] = 1

    def _unmatched(self, owners: Int64Array) -> RowIds:
        """Return the build rows of these owners that no probe row of this task matched."""
        owned = owners
        if self._owned_by is not None:  # they are numbers of parts
            parts = self.columns[self._owned_by].take(None, missing=False).to_numpy(zero_copy_only=False)
            owned = np.flatnonzero(np.isin(parts, owners))
        rows: RowIds = owned[self._was_matched[owned] == 0].astype(row_id_dtype(self._build.rows))
        return rows
