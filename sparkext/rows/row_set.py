"""The data that joins pass on: row ids instead of payload (late materialisation).

A `RowSet` represents rows of the pipeline after some joins: for each source (the probe morsel, then one build side per
join), the row ids of its columns. Payload is gathered once, at the end, for the surviving rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.columns.gather import compose
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.indexes.matches import Pairs
from sparkext.kernels.keys.normalised import cast_key
from sparkext.kernels.runtime.jit import freeze
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.spec import ColumnRef
from sparkext.rows.types import arrow_key_type


@dataclass(frozen=True)
class SourceRows:
    """Ids of rows of one source, or None for all of its rows in order. `missing`: some ids may be -1.

    `to_come`: there are no rows yet, because the source is joined later than sources with higher indexes.
    """

    ids: RowIds | None
    missing: bool = False
    to_come: bool = False

    def through(self, rows: RowIds | None) -> SourceRows:
        """Return the rows at positions `rows` of these rows (None: all)."""
        if rows is None or self.to_come:
            return self
        if self.ids is None:
            return SourceRows(rows, self.missing)
        ids = np.empty(rows.size, dtype=self.ids.dtype)
        compose(self.ids, freeze(rows), ids)
        return SourceRows(freeze(ids), self.missing)


class SourceColumn(Protocol):
    """A column from which rows are gathered: in memory, or read when it is gathered (see `Column`)."""

    @property
    def most_row_bytes(self) -> float:
        """Maximum bytes of a gathered row, infinite if unknown."""
        ...

    @property
    def fits_batch(self) -> bool:
        """Whether the whole column fits one batch."""
        ...

    def add_sizes(self, rows: RowIds, missing: bool, sizes: Int64Array) -> None:
        """Add to `sizes` the bytes that each of `rows` has when it is gathered."""
        ...

    def take(self, rows: RowIds | None, missing: bool) -> pa.Array:
        """Return the column at `rows` (see `Column.take`)."""
        ...


SourceColumns = Sequence[SourceColumn] | Mapping[int, SourceColumn]
"""The columns of a source by index."""

_TO_COME = SourceRows(None, to_come=True)


@dataclass(frozen=True)
class RowSet:
    """`length` rows: `columns[s]` are the columns of source s, `rows[s]` the ids of its rows.

    If no output refers to a source (the build side of a semi or anti join), its ids are None and have no meaning. The
    indexes of sources do not depend on the join order: sources that are joined later have no columns, or are missing at
    the end.
    """

    length: int
    columns: tuple[SourceColumns, ...]
    rows: tuple[SourceRows, ...]

    @classmethod
    def of_morsel(cls, columns: SourceColumns, length: int) -> RowSet:
        """Create the set of all rows of a morsel, at the start of a pipeline."""
        return cls(length, (columns,), (SourceRows(None),))

    @classmethod
    def of_source(cls, source: int, columns: SourceColumns, length: int) -> RowSet:
        """Create the set of all rows of a build side, without other sources."""
        nothing: SourceColumns = {}
        return cls(length, (*[nothing] * source, columns), (*[_TO_COME] * source, SourceRows(None)))

    def joined(self, pairs: Pairs, build: SourceColumns, outer: bool, source: int | None = None) -> RowSet:
        """Return the result of a join of these rows. `outer`: build rows may be -1.

        The build side becomes source `source`, by default the next one.
        """
        probe_rows = None if pairs.probe_rows is None else freeze(pairs.probe_rows)
        build_rows = None if pairs.build_rows is None else freeze(pairs.build_rows)
        sources = [rows.through(probe_rows) for rows in self.rows]
        number = len(sources) if source is None else source
        absent = max(number - len(sources), 0)
        nothing: SourceColumns = {}
        columns = [*self.columns, *[nothing] * absent]
        sources += [_TO_COME] * absent
        # The slice appends the build side if it is the next source, and otherwise replaces its placeholder.
        columns[number : number + 1] = [build]
        sources[number : number + 1] = [SourceRows(build_rows, outer)]
        return RowSet(pairs.length, tuple(columns), tuple(sources))

    def picked(self, rows: npt.NDArray[np.intp]) -> RowSet:
        """Return the rows at these positions."""
        ids = freeze(rows.astype(row_id_dtype(self.length)))
        return RowSet(rows.size, self.columns, tuple(source.through(ids) for source in self.rows))

    def thin_out(self, most: int) -> RowSet:
        """Return at most `most` of these rows, evenly spread."""
        return self if self.length <= most else self.picked(np.arange(most) * self.length // most)

    def slice(self, start: int, length: int) -> RowSet:
        """Return rows `start` to `start + length`."""
        if start == 0 and length == self.length:
            return self
        identity = self._identity(start, length)
        rows = tuple(
            source
            if source.to_come
            else SourceRows(identity if source.ids is None else source.ids[start : start + length], source.missing)
            for source in self.rows
        )
        return RowSet(length, self.columns, rows)

    def parts(self, count: int) -> list[RowSet]:
        """Return these rows in `count` parts of about equal size; empty parts are omitted."""
        edges = [self.length * number // count for number in range(count + 1)]
        return [self.slice(start, stop - start) for start, stop in pairwise(edges) if stop > start]

    def pieces(self, references: Iterable[ColumnRef], most_bytes: int) -> Iterator[RowSet]:
        """Yield the parts of these rows that `within` determines."""
        start = 0
        for end in self.within(references, most_bytes):
            yield self.slice(start, end - start)
            start = end

    def next_piece(self, start: int, rows: int, references: Iterable[ColumnRef], most_bytes: int) -> RowSet:
        """Return the rows from `start`: at most `rows`, and at most the first part that `within` determines."""
        piece = self.slice(start, min(rows, self.length - start))
        return piece.slice(0, next(piece.within(references, most_bytes)))

    def within(self, references: Iterable[ColumnRef], most_bytes: int) -> Iterator[int]:
        """Divide the rows into parts whose gathered columns have at most `most_bytes`, or that are a single row.

        Yield the end of each part. Columns that are emitted without a copy are not counted.
        """
        copied = self._find_copied(references)
        if not self.length or sum(column.most_row_bytes for column, _, _ in copied) * self.length <= most_bytes:
            yield self.length
            return
        sizes = np.zeros(self.length, dtype=np.int64)
        for column, ids, missing in copied:
            column.add_sizes(ids, missing, sizes)
        total = np.cumsum(sizes)
        start = 0
        while start < self.length:
            bytes_before = int(total[start - 1]) if start else 0
            start = max(start + 1, int(np.searchsorted(total, bytes_before + most_bytes, side="right")))
            yield start

    def copies(self, references: Iterable[ColumnRef]) -> bool:
        """Return whether any of these columns has to be copied when it is emitted."""
        return bool(self._find_copied(references))

    def _find_copied(self, references: Iterable[ColumnRef]) -> list[tuple[SourceColumn, RowIds, bool]]:
        gathered = [
            (self.columns[ref.source][ref.column], self.rows[ref.source]) for ref in _expand_references(references)
        ]
        return [
            (column, self._identity(0, self.length) if rows.ids is None else rows.ids, rows.missing)
            for column, rows in gathered
            if rows.ids is not None or not column.fits_batch
        ]

    def _identity(self, start: int, length: int) -> RowIds:
        return freeze(np.arange(start, start + length, dtype=row_id_dtype(self.length)))

    def gather(self, reference: ColumnRef) -> pa.Array:
        """Gather one column for these rows.

        Raises
        ------
        VarBytesOverflowError
            Its strings exceed the capacity of one batch.
        """
        source = self.rows[reference.source]
        array = self.columns[reference.source][reference.column].take(source.ids, source.missing)
        if reference.otherwise is None:
            return array
        assert reference.type is not None, "an alternative has a type"
        target = arrow_key_type(parse_key_type(reference.type))
        otherwise = self.gather(reference.otherwise)
        return cast_key(array, target).fill_null(cast_key(otherwise, target))


def _expand_references(references: Iterable[ColumnRef]) -> Iterator[ColumnRef]:
    """Yield the columns that `gather` copies for these references: each with its alternatives, if it has any.

    An alternative that is also a reference occurs twice, as it is copied twice.
    """
    for reference in dict.fromkeys(references):
        yield reference
        if reference.otherwise is not None:
            yield from _expand_references([reference.otherwise])
