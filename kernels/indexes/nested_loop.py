"""The nested loop: every probe row against every build row, for conditions that no index supports.

    build columns ──▶ │ tile 0 │ tile 1 │ tile 2 │       a tile stays in the first-level cache
    probe rows        ├────────┼────────┼────────┤
      block 0         │ test every pair │   …    │       one verdict (a byte) per pair; LLVM vectorises the test:
      block 1         │   …    │        │        │       eight pairs or more at a time
                      └────────┴────────┴────────┘

A test consists of two functions that are compiled together with the loop around them: `load(probe, i)` fetches the
values of probe row i that the test needs, and `holds(row, constants, build, j)` returns whether they match build row j.
Probe and build are tuples of flat arrays; constants are a tuple of numbers, and of sorted arrays for lists. Resuming in
the middle of a tile's pairs tests that tile again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, unpack_bitmap, view_values
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.indexes.matches import Cursor, Matches, Pairs
from sparkext.kernels.keys.normalised import decimal_halves
from sparkext.kernels.runtime.intrinsics import load_u64
from sparkext.kernels.runtime.jit import AnyArray, embedded, freeze, generated, inlined, kernel

Columns = tuple[AnyArray, ...]
Constant = np.generic | AnyArray
Constants = tuple[Constant, ...]

HIT = 1
FAILED = 2
"""The bits of a verdict: the pair matches (the boolean of the test), and the test failed on the pair."""

TILE = 2048
"""Build rows of a tile. A pair of 16-byte rows takes 0.2 ns; with tiles of 64 rows 0.5 ns, with 4,096 rows 0.3 ns."""
BLOCK = 128
"""Probe rows of a block: enough to make the cost of a kernel call negligible."""


@inlined
def is_among(value: float, values: AnyArray) -> bool:
    """Return whether a number is one of `values`, which are sorted as by `np.unique`: NaN is one number, and last."""
    low = np.int64(0)
    if value != value:
        return bool(values.size > 0 and values[-1] != values[-1])
    high = np.int64(values.size)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return bool(low < values.size and values[low] == value)


class PairError(Exception):
    """A condition has no value for a pair: an overflow, a division by zero, or an error of a Python function."""


Decide = Callable[[Sequence[np.generic], Sequence[np.generic]], bool]
"""Decides a pair on which a test fails, given the values of both sides' arrays, or raises `PairError`."""


def _raise_undecided(probe: Sequence[np.generic], build: Sequence[np.generic]) -> NoReturn:
    raise PairError("the test of a pair fails")


class PairTest:
    """A compiled test. Functions are compiled when they are first called with arrays of new types.

    `load` and `holds` are plain functions that numba compiles; `holds` returns a verdict as uint8. They are compiled
    into loops that belong to this object, and to the copies of it that `bound` returns.
    """

    def __init__(self, load: Callable[..., Any], holds: Callable[..., Any]) -> None:
        load, holds = embedded(load), embedded(holds)

        @generated
        def block(
            constants: Constants,
            probe: Columns,
            first: int,
            build: Columns,
            start: int,
            width: int,
            verdicts: UInt8Array,
            counts: Int64Array,
        ) -> int:
            # Unsigned positions: for signed ones, numba would handle negative values in every access.
            seen = np.uint8(0)
            for r in range(counts.size):
                row = load(probe, first + r)
                at = np.uint64(r) * np.uint64(TILE)
                for j in range(np.uint64(width)):
                    verdicts[at + j] = holds(row, constants, build, np.uint64(start) + j)
                hits = np.int64(0)
                for j in range(np.uint64(width)):
                    hits += np.int64(verdicts[at + j] & np.uint8(1))
                    seen |= verdicts[at + j]
                counts[r] = hits
            return np.int64(seen)

        @generated
        def each(constants: Constants, probe: Columns, build: Columns, verdicts: UInt8Array) -> int:
            seen = np.uint8(0)
            for i in range(np.uint64(verdicts.size)):
                verdicts[i] = holds(load(probe, i), constants, build, i)
                seen |= verdicts[i]
            return np.int64(seen)

        self._block, self._each = block, each
        self._constants: Constants = ()
        self._decide: Decide = _raise_undecided

    def bound(self, constants: Constants, decide: Decide) -> PairTest:
        """Return the same test with these constants. They are not part of the code, so nothing is compiled again."""
        test = copy(self)
        test._constants, test._decide = constants, decide
        return test

    def block(
        self,
        probe: Columns,
        first: int,
        build: Columns,
        start: int,
        verdicts: UInt8Array,
        counts: Int64Array,
    ) -> None:
        """Test `counts.size` probe rows from `first` on against the build rows of a tile, from `start` on.

        `verdicts`: uint8[BLOCK * TILE], `TILE` verdicts for each probe row. `counts`: int64[k], the hits of each probe
        row.

        Raises
        ------
        PairError
            A test fails, and the pair cannot be decided otherwise.
        """
        if self._try_block(probe, first, build, start, verdicts, counts):
            tested = _select_verdicts(verdicts, build, start, counts.size)
            for row, build_row in zip(*np.nonzero(tested & FAILED), strict=True):
                tested[row, build_row] = self._decide_pair(probe, first + row, build, start + build_row)
            counts[:] = (tested & HIT).sum(axis=1)

    def block_until_hit(
        self,
        probe: Columns,
        first: int,
        build: Columns,
        start: int,
        verdicts: UInt8Array,
        counts: Int64Array,
        is_hit: Callable[[RowIds, RowIds], npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        """Like `block`, if pairs after the first hit of a row do not matter. A count above 0 means a hit.

        `is_hit`: tests an additional condition on the hits of a block, given the positions of their rows on both sides
        (RowIds[k] each).

        Raises
        ------
        PairError
            A test fails, the pair cannot be decided otherwise, and its row has no earlier hit.
        """
        failed = self._try_block(probe, first, build, start, verdicts, counts)
        if not failed and (is_hit is None or not counts.any()):
            return
        tested = _select_verdicts(verdicts, build, start, counts.size)
        hits = tested == HIT
        if is_hit is not None:
            rows, build_rows = np.nonzero(hits)
            hits[rows, build_rows] = is_hit(first + rows, start + build_rows)
        for row, build_row in zip(*np.nonzero(tested & FAILED), strict=True):
            if not hits[row, :build_row].any():
                hit = self._decide_pair(probe, first + row, build, start + build_row)
                if hit and is_hit is not None:
                    hit = bool(is_hit(np.array([first + row]), np.array([start + build_row]))[0])
                hits[row, build_row] = hit
        counts[:] = hits.sum(axis=1)

    def _try_block(
        self, probe: Columns, first: int, build: Columns, start: int, verdicts: UInt8Array, counts: Int64Array
    ) -> bool:
        """Test a block, and return whether any test failed."""
        width = min(TILE, build[0].size - start)
        return bool(self._block(self._constants, probe, first, build, start, width, verdicts, counts) & FAILED)

    def each(self, probe: Columns, build: Columns, length: int, until_hit: Int64Array | None = None) -> UInt8Array:
        """Test row i of one side against row i of the other; return uint8[length].

        `until_hit`: int64[length], the probe row of each pair, or -1 if this row has already had a hit. The test may
        fail on a pair after a hit of its row.

        Raises
        ------
        PairError
            The test fails on any other pair, and the pair cannot be decided otherwise.
        """
        verdicts = np.empty(length, dtype=np.uint8)
        if self._each(self._constants, probe, build, verdicts) & FAILED:
            failing = np.flatnonzero(verdicts & FAILED)
            if until_hit is not None:
                first_hits = np.full(int(until_hit.max()) + 2, length)
                hits = np.flatnonzero(verdicts == HIT)
                np.minimum.at(first_hits, until_hit[hits], hits)
                first_hits[-1] = -1
                failing = failing[failing < first_hits[until_hit[failing]]]
            for row in failing:
                verdicts[row] = self._decide_pair(probe, int(row), build, int(row))
        return verdicts

    def _decide_pair(self, probe: Columns, row: int, build: Columns, build_row: int) -> bool:
        return self._decide([array[row] for array in probe], [array[build_row] for array in build])


@dataclass(frozen=True)
class NestedLoop:
    """A morsel against a build side: the counterpart of `Matches` if every pair has to be tried.

    `probe_columns` and `build_columns` are one or more arrays each; the arrays of a side have the same length. They
    contain the rows with the ids `probe_rows` and `build_rows` (RowIds), or all rows in order if the ids are None.
    `morsel_rows` and `build_side_rows` are the numbers of all rows.
    """

    test: PairTest
    probe_columns: Columns
    build_columns: Columns
    morsel_rows: int
    build_side_rows: int
    probe_rows: RowIds | None = None
    build_rows: RowIds | None = None

    def any(self, is_match: Callable[[Pairs], npt.NDArray[np.bool_]] | None = None) -> Matches:
        """Return one match per probe row that has any; its build row has no meaning. No row is tried after its match.

        `is_match` tests an additional condition that is not compiled: it returns bool[pairs.length].
        """
        first = np.full(self.morsel_rows, -1, dtype=row_id_dtype(self.build_side_rows))
        remaining = np.arange(self.probe_columns[0].size)
        columns = self.probe_columns
        verdicts, counts = _allocate_scratch()
        for start in range(0, self.build_columns[0].size, TILE):
            is_hit = None if is_match is None else partial(self._is_match, is_match, remaining)
            hits = np.empty(remaining.size, dtype=np.int64)
            for block in range(0, remaining.size, BLOCK):
                rows = hits[block : block + BLOCK]
                self.test.block_until_hit(
                    columns, block, self.build_columns, start, verdicts, counts[: rows.size], is_hit
                )
                rows[:] = counts[: rows.size]
            has_match = hits > 0
            matched = remaining[has_match]
            first[matched if self.probe_rows is None else self.probe_rows[matched]] = 0
            remaining = remaining[~has_match]
            columns = tuple(freeze(column[~has_match]) for column in columns)
        matched_rows = int(np.count_nonzero(first == 0))
        return Matches(freeze(first), None, None, matched_rows, matched_rows)

    def _is_match(
        self,
        is_match: Callable[[Pairs], npt.NDArray[np.bool_]],
        remaining: npt.NDArray[np.intp],
        rows: RowIds,
        build_rows: RowIds,
    ) -> npt.NDArray[np.bool_]:
        """Call `is_match` for positions among the remaining rows, converted to row ids of the morsel."""
        probe_rows = remaining[rows].astype(row_id_dtype(self.morsel_rows))
        return is_match(self._pairs(probe_rows, build_rows.astype(row_id_dtype(self.build_side_rows)), rows.size))

    def probe(self, how: str, cursor: Cursor, budget: int) -> tuple[Pairs, Cursor, bool]:
        """Return at most `budget` pairs from `cursor` on, the next cursor, and whether these pairs are the last.

        `how` has to be `inner`. Pairs are emitted block by block, and tile by tile within a block. The offset of a
        cursor is the number of tested tiles of the block times `BLOCK * TILE`, plus the emitted pairs of the next tile.
        The last cursor is after all rows of the morsel, including rows that are not among `probe_rows`.
        """
        if how != "inner":
            raise ValueError(f"a nested loop emits pairs, which is not a {how} join")
        probe_rows = np.empty(budget, dtype=row_id_dtype(self.morsel_rows))
        build_rows = np.empty(budget, dtype=row_id_dtype(self.build_side_rows))
        verdicts, counts = _allocate_scratch()
        produced, row = 0, cursor.row
        tile, emitted = divmod(cursor.offset, BLOCK * TILE)
        length, build_length = self.probe_columns[0].size, self.build_columns[0].size
        while row < length:
            block = counts[: min(BLOCK, length - row)]
            for start in range(tile * TILE, build_length, TILE):
                self.test.block(self.probe_columns, row, self.build_columns, start, verdicts, block)
                hits = int(block.sum())
                count_before = produced
                if hits > emitted:
                    width = min(TILE, build_length - start)
                    produced = _write_hits(
                        verdicts, block, width, row, start, emitted, produced, probe_rows, build_rows
                    )
                    emitted += produced - count_before
                if emitted < hits:
                    cursor = Cursor(row, start // TILE * (BLOCK * TILE) + emitted)
                    return self._pairs(probe_rows, build_rows, produced), cursor, False
                emitted = 0
            row, tile = row + block.size, 0
        return self._pairs(probe_rows, build_rows, produced), Cursor(self.morsel_rows, 0), True

    def _pairs(self, probe_rows: RowIds, build_rows: RowIds, produced: int) -> Pairs:
        probe, build = probe_rows[:produced], build_rows[:produced]
        if self.probe_rows is not None:
            probe = self.probe_rows[probe]
        if self.build_rows is not None:
            build = self.build_rows[build]
        return Pairs(produced, probe, build)


def read_numbers(column: pa.Array) -> AnyArray:
    """Return a column's values as a flat array that a test can read; values of null rows are undefined.

    Integers and floats are unchanged, booleans become uint8, dates int32 days, timestamps int64 in their unit, decimals
    of up to 18 digits int64 unscaled digits.
    """
    arrow_type = column.type
    if pa.types.is_boolean(arrow_type):
        return unpack_bitmap(column, 1)
    if pa.types.is_decimal(arrow_type):
        return freeze(decimal_halves(column)[:, 0].copy())
    kind = "f" if pa.types.is_floating(arrow_type) else "i"
    return view_values(column, f"{kind}{arrow_type.bit_width // 8}")


def _select_verdicts(verdicts: UInt8Array, build: Columns, start: int, rows: int) -> npt.NDArray[np.uint8]:
    """Return the verdicts of a block, [rows, build rows of the tile]."""
    return verdicts.reshape(BLOCK, TILE)[:rows, : min(TILE, build[0].size - start)]


def _allocate_scratch() -> tuple[UInt8Array, Int64Array]:
    return np.empty(BLOCK * TILE, dtype=np.uint8), np.empty(BLOCK, dtype=np.int64)


@kernel
def _write_hits(
    verdicts: UInt8Array,
    counts: Int64Array,
    width: int,
    first_row: int,
    first_build: int,
    skipped: int,
    produced: int,
    probe_rows: RowIds,
    build_rows: RowIds,
) -> int:
    """Write the hits of a block, except the first `skipped`, until the output is full; return its new length."""
    hits = np.uint64(0x0101010101010101)
    passed = np.int64(0)
    for r in range(counts.size):
        if passed + counts[r] <= skipped:
            passed += counts[r]
            continue
        at = r * TILE
        j = 0
        while j < width:
            stop = min(j + 8, width)
            if j + 8 <= width and load_u64(verdicts, at + j) & hits == 0:
                j = stop
            while j < stop:
                if verdicts[at + j] & 1:
                    if passed >= skipped:
                        if produced == probe_rows.size:
                            return produced
                        probe_rows[produced] = first_row + r
                        build_rows[produced] = first_build + j
                        produced += 1
                    passed += 1
                j += 1
    return produced
