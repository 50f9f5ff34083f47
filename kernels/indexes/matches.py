"""The resumable probe: from match ranges to row-id pairs, never more than a budget at a time.

The look-up of equal keys in any index returns a range of matches for each probe row of a morsel:

    probe row     first   count          index rows            pairs, cut by a budget of 3
    ---------     -----   -----          ----------            ---------------------------
    0             4       2              rows[4], rows[5]      (0, 8) (0, 2) | resumes at
    1             -1      0      ──▶     ─                ──▶  (2, 7)        | row 2, offset 1
    2             0       3              rows[0..2]            (2, 1) (2, 9)

`probe` turns ranges into pairs from a `Cursor` on. The cursor may point into the middle of one probe row's matches, so
a row with ten million matches can be emitted under a budget of one. Every pair is emitted exactly once, in probe-row
order, and within a probe row in the order of the index's `rows`. (Kawashima & Tatebe, conclusion 3: an operator that
reaches its output size returns control, and resumes at the position where it stopped.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparkext.kernels.columns.buffers import UInt8Array
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.runtime.jit import freeze, kernel


@dataclass(frozen=True)
class Matches:
    """The matches of one morsel of `first.size` probe rows.

    `first`, `counts` and `rows` have one dtype, that of the build side's row ids.

    - `first`: RowIds[n], the first entry of the row's match range, or -1 if nothing matches.
    - `counts`: RowIds[n] entries in the range, or None if every range has at most one.
    - `rows`: build row of each index entry, or None if the entry is the build row.
    - `matched`: number of probe rows with a match; `pairs`: sum of all counts.
    """

    first: RowIds
    counts: RowIds | None
    rows: RowIds | None
    matched: int
    pairs: int

    def output_rows(self, how: str) -> int:
        """Return the number of output rows of a join of kind `how` (see `probe`) for the morsel."""
        rows = self.first.size
        unmatched = rows - self.matched
        return {
            "inner": self.pairs,
            "left": self.pairs + unmatched,
            "semi": self.matched,
            "anti": unmatched,
            "existence": rows,
        }[how]


class Cursor(NamedTuple):
    """The position at which a probe resumes: a probe row, and how many of its matches have been emitted."""

    row: int
    offset: int


START = Cursor(0, 0)


class Pairs(NamedTuple):
    """One budgeted piece of a probe's output.

    - `probe_rows`: RowIds[k], or None for "every row of the morsel, once, in order".
    - `build_rows`: RowIds[k], -1 if an outer join found no match, or None for semi and anti joins.
    """

    length: int
    probe_rows: RowIds | None
    build_rows: RowIds | None


def probe(matches: Matches, how: str, cursor: Cursor, budget: int, remaining: int) -> tuple[Pairs, Cursor]:
    """Emit at most `budget` (at least 1) result rows from `cursor` on.

    `how` is `inner`, `left`, `semi`, `anti`, or `existence`: every probe row once, whether it has a match or not.
    `remaining` is `Matches.output_rows` less the rows that have been emitted: it sizes the output exactly. Once all
    rows have been emitted, the returned cursor has no meaning.
    """
    n = matches.first.size
    size = min(budget, remaining)
    if how == "existence":
        rows = None if size == n else np.arange(cursor.row, cursor.row + size, dtype=_probe_dtype(matches))
        return Pairs(size, rows, rows), Cursor(cursor.row + size, 0)
    if how in ("semi", "anti"):
        return _probe_membership(matches, how == "semi", cursor, size)
    outer = how == "left"
    if matches.counts is None and matches.rows is None and cursor == START and size == n:
        # Each probe row gives exactly one result row: nothing to compact, nothing to copy.
        return Pairs(n, None, matches.first), Cursor(n, 0)
    probe_rows = np.empty(size, dtype=_probe_dtype(matches))
    build_rows = np.empty(size, dtype=matches.first.dtype)
    none = freeze(np.empty(0, dtype=matches.first.dtype))
    counts = none if matches.counts is None else matches.counts
    rows = none if matches.rows is None else matches.rows
    row, offset = _expand(
        matches.first,
        counts,
        rows,
        matches.rows is None,
        outer,
        cursor.row,
        cursor.offset,
        probe_rows,
        build_rows,
    )
    return Pairs(size, probe_rows, build_rows), Cursor(row, offset)


def mark_matched(matches: Matches, marks: UInt8Array, *, overlap: bool) -> None:
    """Set the marks (uint8, one per build row) of the build rows that match.

    `overlap`: whether the match ranges of two rows may overlap without being equal, as in a range join. Otherwise a row
    whose first match is marked already is skipped, so that a hot key costs little.
    """
    none = freeze(np.empty(0, dtype=matches.first.dtype))
    counts = none if matches.counts is None else matches.counts
    rows = none if matches.rows is None else matches.rows
    _mark(matches.first, counts, rows, matches.rows is None, marks, overlap)


def _probe_dtype(matches: Matches) -> np.dtype[Any]:
    """Return the dtype of the morsel's row ids: wide if the build side's are, so that tests of wide ids cover both."""
    return row_id_dtype(matches.first.size, wide=matches.first.dtype == np.int64)


def _probe_membership(matches: Matches, with_match: bool, cursor: Cursor, size: int) -> tuple[Pairs, Cursor]:
    n = matches.first.size
    if size == n and cursor == START:
        return Pairs(n, None, None), Cursor(n, 0)
    probe_rows = np.empty(size, dtype=_probe_dtype(matches))
    row = _fill_members(matches.first, with_match, cursor.row, probe_rows)
    return Pairs(size, probe_rows, None), Cursor(row, 0)


@kernel
def _mark(first: RowIds, counts: RowIds, rows: RowIds, entry_is_row: bool, marks: UInt8Array, overlap: bool) -> None:
    for i in range(first.size):
        entry = first[i]
        if entry < 0 or (not overlap and marks[entry if entry_is_row else rows[entry]] != 0):
            continue
        stop = entry + (1 if counts.size == 0 else counts[i])
        for match in range(entry, stop):
            marks[match if entry_is_row else rows[match]] = 1


@kernel
def _expand(
    first: RowIds,
    counts: RowIds,
    rows: RowIds,
    entry_is_row: bool,
    outer: bool,
    row: int,
    offset: int,
    probe_rows: RowIds,
    build_rows: RowIds,
) -> tuple[int, int]:
    """Fill both outputs (of equal sizes) with the next pairs from (row, offset) on; return the next (row, offset).

    Without `counts` every range has one entry.
    """
    single = counts.size == 0
    produced = 0
    wanted = probe_rows.size
    while produced < wanted:
        start = np.int64(first[row])
        if start < 0:
            if outer:
                probe_rows[produced] = row
                build_rows[produced] = -1
                produced += 1
            row += 1
            continue
        count = 1 if single else np.int64(counts[row])
        take = min(count - offset, wanted - produced)
        start += offset
        for j in range(take):
            probe_rows[produced + j] = row
            build_rows[produced + j] = start + j if entry_is_row else np.int64(rows[start + j])
        produced += take
        offset += take
        if offset == count:
            row += 1
            offset = 0
    return row, offset


@kernel
def _fill_members(first: RowIds, wanted: bool, row: int, probe_rows: RowIds) -> int:
    """Fill `probe_rows` with the next rows, from `row` on, with a match (`wanted`) or without; return the next row."""
    produced = 0
    while produced < probe_rows.size:
        if (first[row] >= 0) == wanted:
            probe_rows[produced] = row
            produced += 1
        row += 1
    return row
