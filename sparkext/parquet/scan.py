"""Reads Parquet files inside the pipeline: row groups become row sets whose columns are read on first access.

    split ─▶ its row groups ─▶ pruned by statistics ─▶ columns of the filter ─▶ keys of the joins ─▶ payload

Late reading complements pruning: if a filter or a join leaves no row of a row group, the columns that are needed later
in the pipeline are never decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sparkext.errors import SchemaMismatchError
from sparkext.expressions.arrow_evaluator import holds, repeat_literal
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.runtime.threads import map_ahead, pool, run_each
from sparkext.memory.probes import process_probe
from sparkext.parquet.decoded_sizes import DecodedSizes
from sparkext.parquet.decoding import convert_to_declared, decode_in_pieces
from sparkext.parquet.deferred_column import DeferredColumn
from sparkext.parquet.deleted_rows import decode_deleted_rows, select_undeleted
from sparkext.parquet.file_stores import REQUESTS, Bucket, Identity, identity_of, store_of
from sparkext.parquet.metrics import ScanMetrics
from sparkext.parquet.opened_file import OpenedFile, Unit, check_same, open_parquet_file, wrap_read_errors
from sparkext.parquet.rules import Calendars, find_calendar_problem, find_read_problem
from sparkext.parquet.statistics import UNKNOWN, ProbeBounds
from sparkext.plans.pipeline.scan import ColumnBounds, ScanSpec, Split, divide_row_groups, may_hold, may_meet
from sparkext.plans.pipeline.spec import PROBE, ColumnRef
from sparkext.rows.collected import CollectedRows
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.morsels import MAX_MORSEL_BYTES
from sparkext.rows.row_set import RowSet

_AHEAD_OF_HEADROOM = 0.1
"""Fraction of the free memory up to which columns are prefetched."""

_WAITING = 8
"""Number of threads that read remote files into memory: most of them wait for a response."""


@dataclass
class ParquetScan:
    """A scan bound to the types of its columns: the Arrow types of the types that Spark declares.

    `bounds`: rows with keys outside may be omitted. Row sets have at most `max_rows` rows, before any filter.
    `calendars`: if given, files are checked for columns that Spark would read differently. `planned`: the planner has
    checked the files; only calendars, which types do not show, are checked again, as files may have been added since.
    `buckets`: the buckets of remote files. `opened`: the identities of opened files. `unchecked`: the files that have
    been read since their identity was last checked. `text_bytes`: see `DecodedSizes`.
    """

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {
        "max_rows": "rows that are read at a time",
        "bounds": "the bounds of the current reader: each reader begins without bounds (see `begun`) and sets its own",
        "planned": "which process checks the files, not their contents",
        "metrics": "the state of reading",
        "opened": "the state of reading",
        "unchecked": "the state of reading",
        "text_bytes": "the state of reading",
    }

    spec: ScanSpec
    schema: pa.Schema
    max_rows: int
    bounds: Sequence[ProbeBounds] = ()
    calendars: Calendars | None = None
    planned: bool = False
    buckets: tuple[Bucket, ...] = ()
    metrics: ScanMetrics = field(default_factory=ScanMetrics)
    opened: dict[str, Identity] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)
    text_bytes: dict[int, float] = field(default_factory=dict)

    def begun(self, bounds: Sequence[ProbeBounds] = ()) -> ParquetScan:
        """Return the same scan with these bounds, before it has read anything."""
        return replace(self, bounds=bounds, metrics=ScanMetrics(), opened={}, unchecked=set())

    def row_sets(self, splits: Iterable[Split]) -> Iterator[RowSet]:
        """Yield the rows of these splits, without empty row sets. Columns are in the order of the spec."""
        units = (unit for split in splits for unit in self.units(split))
        for columns in self._prefetch_columns(units) if self.buckets else (_UnitColumns(self, unit) for unit in units):
            yield from self._rows(columns)

    def table(self, splits: Sequence[Split], threads: int, check: Callable[[int, int], None]) -> pa.Table:
        """Read all rows of these splits into memory, in several threads. `check`: see `CollectedRows`."""
        with CollectedRows(check) as rows:
            return self.collect(splits, threads, rows)

    def collect(self, splits: Sequence[Split], threads: int, rows: CollectedRows) -> pa.Table:
        """Read all rows of these splits in several threads, through `rows`; return them as a table."""
        names = self.schema.names[: self.spec.outputs]

        def read(number: int, unit: Unit) -> None:
            with rows.turn():
                for position, batch in enumerate(self._batches(unit, names, requests)):
                    rows.add((number, position), batch)

        with pool(REQUESTS) if self.buckets else nullcontext() as requests:
            units = [unit for split in self._open_ahead(splits) for unit in self.units(split)]
            run_each(read, range(len(units)), units, threads=max(threads, _WAITING) if self.buckets else threads)
        self.check_unchanged()
        return rows.table(pa.schema([self.schema.field(number) for number in range(self.spec.outputs)]))

    def rows_of(self, splits: Iterable[Split]) -> int:
        """Return the number of rows in the files of these splits, according to their footers."""
        files = {split.path: split for split in splits}
        opened = (self._file(split.path, self.identity(split.path)) for split in self._open_ahead(files.values()))
        return sum(file.metadata.num_rows for file in opened)

    def identity(self, path: str) -> Identity:
        """Return the identity of the file at a path, cached for the present run of a query (see `cache_identities`)."""
        with wrap_read_errors(path):
            return identity_of(path, self.buckets)

    def identities(self, paths: Iterable[str]) -> dict[str, Identity]:
        """Return the identities of files; remote files are requested concurrently."""
        identities: dict[str, Identity] = {}
        self._run_concurrently(lambda path: identities.setdefault(path, self.identity(path)), dict.fromkeys(paths))
        return identities

    def check_unchanged(self) -> None:
        """Check that each file was not replaced while it was read. To be called before any of its rows are emitted.

        Raises
        ------
        FileReadError
            A file was replaced while it was read.
        """
        paths = [self.unchecked.pop() for _ in range(len(self.unchecked))]
        self._run_concurrently(lambda path: check_same(path, self.opened[path], store_of(path, self.buckets)), paths)

    def _run_concurrently(self, work: Callable[[str], object], paths: Collection[str]) -> None:
        if self.buckets and len(paths) > 1:
            run_each(work, paths, threads=min(REQUESTS, len(paths)))
            return
        for path in paths:
            work(path)

    def _open_ahead(self, splits: Iterable[Split]) -> Iterable[Split]:
        """Yield splits with opened files; the next remote files are opened ahead."""

        def open_files(split: Split) -> Split:
            self._file(split.path, self.identity(split.path))
            return split

        return map_ahead(open_files, splits, REQUESTS) if self.buckets else splits

    def units(self, split: Split) -> Iterator[Unit]:
        """Yield the units of a split: row groups that it owns and that statistics do not rule out."""
        identity = self.opened.setdefault(split.path, self.identity(split.path))
        file = self._file(split.path, identity)
        self.unchecked.add(split.path)
        if self.calendars is not None:
            self._check(file, self.calendars)
        owned = [number for number, (offset, size) in enumerate(file.extents) if split.owns(offset, size)]
        groups = [number for number in owned if self._may_give_rows(file, number, split.values)]
        self.metrics.row_groups += len(groups)
        self.metrics.row_groups_pruned += len(owned) - len(groups)
        for first, last in _find_consecutive(groups):
            sizes = [self._sizes.of_group(file, group) for group in range(first, last)]
            for start, stop in divide_row_groups(sizes, self.max_rows, MAX_MORSEL_BYTES):
                yield Unit(file, first + start, first + stop, split.values, split.deleted)

    def _prefetch_columns(self, units: Iterator[Unit]) -> Iterator[_UnitColumns]:
        """Yield the columns of each unit, prefetched while the preceding unit is processed.

        For the first two units, all columns are prefetched; for each later unit, the columns that were accessed in the
        unit two before it. Only for remote files. Prefetching does not accelerate reads from disk, because other tasks
        use the cores meanwhile.
        """
        with pool(REQUESTS) as executor:

            def prepare_next(needed: Collection[int]) -> _UnitColumns | None:
                unit = next(units, None)
                return None if unit is None else self._columns(unit, needed, executor)

            needed: Collection[int] = range(len(self.spec.columns))
            current = prepare_next(needed)
            try:
                while current is not None:
                    following = executor.submit(prepare_next, needed)
                    yield current
                    needed = current.needed
                    current = following.result()
            finally:
                executor.shutdown(wait=True, cancel_futures=True)

    def _columns(self, unit: Unit, fetched: Collection[int], requests: Executor | None) -> _UnitColumns:
        """Return the columns of a unit. Columns of remote files are requested in advance, if they fit in memory."""
        columns = _UnitColumns(self, unit)
        if requests is not None and not self._sizes.streams(unit) and _fits_headroom(self._sizes.of_unit(unit)[1]):
            columns.fetch(fetched, requests)
        return columns

    def _rows(self, columns: _UnitColumns) -> Iterator[RowSet]:
        """Yield the rows of a unit that are not deleted and that pass the filter."""
        for rows in self._read_undeleted(columns):
            self.metrics.rows += rows.length
            if self.spec.filter is None:
                yield rows
                continue
            tested = [ColumnRef(node.source, node.column) for node in self.spec.filter.columns()]
            for piece in rows.pieces(tested, MAX_MORSEL_BYTES):
                row_numbers = np.flatnonzero(holds(self.spec.filter, piece))
                if row_numbers.size == piece.length:
                    yield piece
                elif row_numbers.size:
                    yield piece.picked(row_numbers)

    def _read_undeleted(self, columns: _UnitColumns) -> Iterator[RowSet]:
        """Yield the rows of a unit that are not deleted."""
        deleted, number = decode_deleted_rows(columns.unit.deleted), columns.unit.first_row
        for rows in self._read_unfiltered(columns):
            row_numbers = select_undeleted(deleted, number, rows.length)
            number += rows.length
            if row_numbers is None:
                yield rows
            elif row_numbers.size:
                yield rows.picked(row_numbers)

    def _file(self, path: str, identity: Identity) -> OpenedFile:
        with wrap_read_errors(path):
            return open_parquet_file(path, identity, self._names(), store_of(path, self.buckets))

    def _check(self, file: OpenedFile, calendars: Calendars) -> None:
        for number, column in enumerate(self.spec.columns):
            if column.partition is not None:
                continue
            target, leaf = self.schema.field(number).type, file.leaf(number)
            if self.planned:
                problem = (
                    None if leaf is None else find_calendar_problem(file.metadata, column.name, leaf, target, calendars)
                )
            else:
                problem = find_read_problem(
                    file.metadata, file.match_names(number), column.name, leaf, target, calendars
                )
            if problem is not None:
                raise SchemaMismatchError(
                    f"workers do not read {file.path!r}: {problem}. Read it with spark.read.parquet"
                )

    @property
    def _sizes(self) -> DecodedSizes:
        return DecodedSizes(self.schema, self.text_bytes)

    def _names(self) -> tuple[tuple[str | int | None, ...], bool]:
        """Return the columns' names in files, and case sensitivity.

        Names of partition columns are None, so that no column of a file matches.
        """
        return tuple(column.in_files for column in self.spec.columns), self.spec.case_sensitive

    def _batches(self, unit: Unit, names: Sequence[str], requests: Executor | None) -> Iterator[pa.RecordBatch]:
        columns = [ColumnRef(PROBE, number) for number in range(len(names))]
        for rows in self._rows(self._columns(unit, range(len(self.spec.columns)), requests)):
            for piece in rows.pieces(columns, MAX_MORSEL_BYTES):
                yield pa.RecordBatch.from_arrays([piece.gather(column) for column in columns], names=list(names))

    def _read_unfiltered(self, columns: _UnitColumns) -> Iterator[RowSet]:
        unit = columns.unit
        rows, size = self._sizes.of_unit(unit)
        # The number of rows that is expected to fit the byte limit of a morsel.
        most = max(1, min(self.max_rows, rows * MAX_MORSEL_BYTES // max(size, 1)))
        if self._sizes.streams(unit):
            yield from self._stream_rows(unit, most)
            return
        for start in range(0, rows, most):
            length = min(most, rows - start)
            parts = [columns.part(number, start, length) for number in range(len(self.spec.columns))]
            yield RowSet.of_morsel(parts, length)

    def _stream_rows(self, unit: Unit, length: int) -> Iterator[RowSet]:
        """Yield the rows of a row group that is too large to be held in memory, some rows of all columns at a time."""
        order = sorted(set(self._leaves(unit.file)))
        self._count_bytes(unit, order)
        streamed = unit.file.stream(range(unit.first, unit.last), order, length)
        for batch in chain.from_iterable(map(decode_in_pieces, streamed)):
            self.unchecked.add(unit.file.path)
            columns = []
            for number in range(len(self.spec.columns)):
                leaf = unit.file.leaf(number)
                target = self.schema.field(number).type
                if leaf is None:
                    columns.append(Column.of(self.constant(unit.values, number, batch.num_rows)))
                else:
                    columns.append(
                        Column.of(convert_to_declared(batch.column(order.index(leaf)), target, unit.file.path))
                    )
            yield RowSet.of_morsel(columns, batch.num_rows)

    def read(self, unit: Unit, number: int, opened: Callable[[], Any]) -> pa.ChunkedArray | None:
        """Read one column of a unit with a reader that no other thread uses; None if the file lacks the column."""
        leaf = unit.file.leaf(number)
        if leaf is None:
            return None
        self._count_bytes(unit, [leaf])
        groups = list(range(unit.first, unit.last))
        with wrap_read_errors(unit.file.path):
            column = opened().read_row_groups(groups, column_indices=[leaf], use_threads=False).column(0)
        self.unchecked.add(unit.file.path)
        if number in self.text_bytes and not pa.types.is_dictionary(column.type):
            self._sizes.remember(number, column)
        return column

    def part(self, unit: Unit, number: int, column: pa.ChunkedArray | None, start: int, length: int) -> pa.Array:
        """Return rows `start` to `start + length` of a column that `read` returned, with the declared type."""
        if column is None:
            return self.constant(unit.values, number, length)
        array = make_contiguous(column.slice(start, length))
        declared = convert_to_declared(array, self.schema.field(number).type, unit.file.path)
        if number in self.text_bytes and pa.types.is_dictionary(column.type):
            self._sizes.remember(number, declared)
        return declared

    def constant(self, values: Sequence[str | None], number: int, length: int) -> pa.Array:
        """Return a partition value as a column, or nulls for a column that the file lacks."""
        target = self.schema.field(number).type
        partition = self.spec.columns[number].partition
        text = None if partition is None else values[partition]
        return pa.nulls(length, target) if text is None else repeat_literal(text, target, length)

    def _leaves(self, file: OpenedFile) -> list[int]:
        return [leaf for leaf in map(file.leaf, range(len(self.spec.columns))) if leaf is not None]

    def _count_bytes(self, unit: Unit, leaves: Sequence[int]) -> None:
        for number in range(unit.first, unit.last):
            group = unit.file.metadata.row_group(number)
            self.metrics.bytes += sum(group.column(leaf).total_compressed_size for leaf in leaves)

    def _may_give_rows(self, file: OpenedFile, number: int, values: tuple[str | None, ...]) -> bool:
        rows = file.metadata.row_group(number).num_rows
        if rows == 0:
            return False

        def bounds(column: int) -> ColumnBounds:
            if self.spec.columns[column].partition is not None:
                return UNKNOWN
            return file.bounds(number, column, self.schema.field(column).type)

        if self.spec.filter is not None and not may_hold(self.spec.filter, bounds, rows):
            return False
        return all(may_meet(bounds(key.column), key.keys) for key in self.bounds)


class _UnitColumns:
    """The columns of a unit. Each is read once for all of the unit's morsels, on first access."""

    def __init__(self, scan: ParquetScan, unit: Unit) -> None:
        self.unit = unit
        self._scan = scan
        self._turn = Lock()
        self._opened = cache(unit.file.reader)  # once for all columns: scans are some 5 % faster
        self._loaded_columns: dict[int, pa.ChunkedArray | None] = {}

    @property
    def needed(self) -> Collection[int]:
        """The columns that have been accessed."""
        with self._turn:
            return frozenset(self._loaded_columns)

    def fetch(self, numbers: Collection[int], pool: Executor) -> None:
        """Request columns of a remote file, before they are read."""
        leaves = [leaf for leaf in map(self.unit.file.leaf, numbers) if leaf is not None]
        fetched = self.unit.file.request_columns(range(self.unit.first, self.unit.last), leaves, pool)
        self._opened = cache(partial(self.unit.file.reader, fetched=fetched))

    def part(self, number: int, start: int, length: int) -> DeferredColumn:
        """Return some rows of a column."""
        return DeferredColumn(lambda: self._scan.part(self.unit, number, self._read(number), start, length))

    def _read(self, number: int) -> pa.ChunkedArray | None:
        with self._turn:  # threads of a task may work on morsels of the same unit
            if number not in self._loaded_columns:
                self._loaded_columns[number] = self._scan.read(self.unit, number, self._opened)
            return self._loaded_columns[number]


def _fits_headroom(size: int) -> bool:
    """Return whether prefetching `size` bytes, including their decoded values, needs little of the free memory."""
    headroom = process_probe().headroom()
    return headroom is None or size < headroom.bytes * _AHEAD_OF_HEADROOM


def _find_consecutive(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, last) of consecutive numbers."""
    start = 0
    for position in range(1, len(numbers) + 1):
        if position == len(numbers) or numbers[position] != numbers[position - 1] + 1:
            yield numbers[start], numbers[position - 1] + 1
            start = position
