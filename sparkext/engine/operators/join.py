"""A join: looks rows up in a build side and emits pairs of row ids.

    rows ─▶ pieces whose keys fit a budget ─▶ matches ─▶ pairs, a budget at a time ─▶ rows with one more source

If the join has only keys, all rows with equal keys match. If it also has a condition, a row is known to have no match
only after all of its pairs have been tested. Results that depend on this (unmatched rows of a left join, semi, anti and
existence joins) are emitted after the pairs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkext.build_sides.index_store import BuildSide
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.operators.join_matches import FoundMatches, JoinMatches, Lookup, split_into_pieces
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.columns.row_ids import row_id_dtype
from sparkext.kernels.indexes.matches import START, Matches, Pairs, probe
from sparkext.kernels.indexes.nested_loop import NestedLoop
from sparkext.kernels.indexes.range_index import Candidates
from sparkext.kernels.runtime.jit import freeze
from sparkext.plans.pipeline.spec import JoinSpec
from sparkext.rows.row_set import RowSet, SourceColumns

_ROW_ID_BYTES = 8
_LOOKUP_BYTES = 16  # first match and count of every probe row
_PROBE_KIND = {"right": "inner", "full": "left"}


class Join:
    """A join whose output is determined for each probe row: inner, left, semi, anti or existence.

    `source` is the index of the build side among the sources of the pipeline. `input_sources` is the number of
    sources of the input rows: `source` by default, unless the joins run in a different order than in the query.
    """

    def __init__(self, spec: JoinSpec, build: BuildSide, source: int, input_sources: int | None = None) -> None:
        """Bind the join to its build side."""
        self._kind = _PROBE_KIND.get(spec.how, spec.how)
        self._outer = self._kind == "left"
        self._build = build
        self._source = source
        self._matches = JoinMatches(spec, self._kind, build, source)
        self.row_bytes = float(
            _ROW_ID_BYTES * ((source if input_sources is None else input_sources) + 1) + _LOOKUP_BYTES
        )

    @property
    def columns(self) -> Mapping[int, Column]:
        """The build columns that later nodes may read."""
        return {} if self._kind == "existence" else self._build.columns

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the results of the join for these rows."""
        # Keys that are copied for the lookup are limited to a budget at a time.
        for piece in split_into_pieces(rows, self._matches.looked_up, budget):
            started = time.perf_counter()
            matches = self._matches.lookup(piece, budget)
            budget.add_time_since(started)
            yield from self._emitted(piece, matches, budget)

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit nothing: `process` emits all results."""
        return iter(())

    def _emitted(self, rows: RowSet, matches: FoundMatches, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the results for these rows and the matches found for them."""
        emitted = self._emit_tested if matches.conditional else self._emit_untested
        return emitted(rows, matches.pairs, budget)

    def _emit_untested(self, rows: RowSet, matches: Lookup, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the results for these rows, a budget at a time, without testing pairs."""
        columns: SourceColumns = self.columns
        if self._kind == "existence":
            assert isinstance(matches, Matches), "only one match per row is required"
            columns = _create_existence_column(matches.first >= 0)
        for pairs in _expand_matches(rows.length, matches, self._kind, budget):
            yield rows.joined(pairs, columns, self._outer, self._source)

    def _emit_tested(self, rows: RowSet, matches: Lookup, budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the results for these rows after testing their pairs; see the module docstring."""
        matched = np.zeros(rows.length, dtype=np.bool_)
        emits_pairs = self._kind in ("inner", "left")
        for pairs in _expand_matches(rows.length, matches, "inner", budget):
            probe_rows = np.arange(pairs.length) if pairs.probe_rows is None else pairs.probe_rows
            start = 0
            candidates = rows.joined(pairs, self._build.columns, False, self._source)
            for piece in split_into_pieces(candidates, self._matches.tested, budget):
                started = time.perf_counter()
                piece_rows = probe_rows[start : start + piece.length]
                # Semi, anti and existence joins need one match per row: failures on its later pairs are ignored.
                indexes = self._matches.kept(
                    piece, None if emits_pairs else np.where(matched[piece_rows], -1, piece_rows)
                )
                matched[piece_rows if indexes is None else piece_rows[indexes]] = True
                start += piece.length
                passed = piece if indexes is None else piece.picked(indexes)
                self._note(passed)
                budget.add_time_since(started)
                if passed.length and emits_pairs:
                    yield passed
        yield from self._decided(rows, matched, budget)

    def _decided(self, rows: RowSet, matched: npt.NDArray[np.bool_], budget: OperatorBudget) -> Iterator[RowSet]:
        """Emit the results that depend on whether a row has a match, one per row."""
        kind = self._kind
        if kind == "inner":
            return
        row_numbers = np.arange(rows.length) if kind == "existence" else np.flatnonzero(matched == (kind == "semi"))
        ids = freeze(row_numbers.astype(row_id_dtype(rows.length)))
        columns: SourceColumns = _create_existence_column(matched) if kind == "existence" else self.columns
        start = 0
        while start < ids.size:
            piece = ids[start : start + budget.next().rows]
            build_rows = {"left": np.full_like(piece, -1), "existence": piece}.get(kind)
            yield rows.joined(Pairs(piece.size, piece, build_rows), columns, self._outer, self._source)
            budget.observe(0, piece.size)
            start += piece.size

    def _note(self, pairs: RowSet) -> None:
        """Receive the pairs that fulfil the condition: a hook for subclasses."""


def _expand_matches(rows_in: int, matches: Lookup, kind: str, budget: OperatorBudget) -> Iterator[Pairs]:
    """Expand matches into pairs, a budget at a time. Each budget is requested just before its pairs are produced."""
    if isinstance(matches, Matches):
        return _expand_ranges(rows_in, matches, kind, budget)
    return _test_candidates(matches, kind, budget)


def _expand_ranges(rows_in: int, matches: Matches, kind: str, budget: OperatorBudget) -> Iterator[Pairs]:
    """Yield the pairs of ranges of matches."""
    remaining = matches.output_rows(kind)
    cursor = START
    while remaining:
        started = time.perf_counter()
        most = budget.next().rows
        first_row = cursor.row
        pairs, cursor = probe(matches, kind, cursor, most, remaining)
        remaining -= pairs.length
        used = cursor.row - first_row if remaining else rows_in
        rows_in -= used
        budget.observe(used, pairs.length)
        budget.add_time_since(started)
        yield pairs
    if rows_in:
        budget.observe(rows_in, 0)


def _test_candidates(candidates: Candidates | NestedLoop, kind: str, budget: OperatorBudget) -> Iterator[Pairs]:
    """Yield the pairs found by testing candidates."""
    cursor, ended = START, False
    while not ended:
        started = time.perf_counter()
        most = budget.next().rows
        first_row = cursor.row
        pairs, cursor, ended = candidates.probe(kind, cursor, most)
        budget.observe(cursor.row - first_row, pairs.length)
        budget.add_time_since(started)
        if pairs.length:
            yield pairs


def _create_existence_column(matched: npt.NDArray[np.bool_]) -> Sequence[Column]:
    """Return the column that an existence join adds; `matched` is true for rows with a match."""
    return [Column.of(pa.array(matched))]
