"""Reads Parquet files inside the pipeline: row groups become row sets whose columns are read when they are asked for.

    split ─▶ its row groups ─▶ not ruled out by statistics ─▶ columns of the filter ─▶ keys of the joins ─▶ payload

What no row group rules out before it is read, late reading does after: where a filter or a join leaves no row of a row
group, the columns that come later in the pipeline are never decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkext.errors import FileReadError, SchemaMismatchError
from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.gather import MAX_VAR_BYTES, Column
from sparkext.kernels.row_ids import RowIds
from sparkext.kernels.threads import pool
from sparkext.memory.probes import process_probe
from sparkext.parquet.file_stores import REQUESTS, Bucket, FileStore, Identity, store_of
from sparkext.parquet.metrics import ScanMetrics
from sparkext.parquet.rules import Calendars, misread, rebased
from sparkext.plans.scan import ColumnBounds, ScanSpec, Split, grouped, may_hold, may_meet
from sparkext.plans.spec import PROBE, ColumnRef
from sparkext.rows.collected import CollectedRows
from sparkext.rows.conditions import holds, literal_array
from sparkext.rows.contiguous import contiguous, wide_type
from sparkext.rows.morsels import MAX_MORSEL_BYTES, within_bytes
from sparkext.rows.row_set import RowSet

MAX_GROUP_ROWS = 1 << 20
"""Rows of a row group up to which its columns are read whole, each when it is asked for; larger ones stream."""

MAX_GROUP_BYTES = 256 << 20
"""The same for the bytes of the columns that are read, decoded."""

_SAMPLED_ROWS = 1024

_DECODED_WIDTHS = {
    "BOOLEAN": 1,
    "INT32": 4,
    "FLOAT": 4,
    "INT64": 8,
    "INT96": 8,
    "DOUBLE": 8,
    "FIXED_LEN_BYTE_ARRAY": 16,
}
"""Bytes of a value in memory, by its type in Parquet. Those of fixed length are decimals."""

_OPEN_FILES = 64

_REQUESTED_BYTES = 8 << 20
"""Bytes of one column of a remote file that are asked for at a time where it streams."""

_AHEAD_OF_HEADROOM = 0.1
"""Columns are read ahead only if they take no more of the memory there is."""

_UNKNOWN = ColumnBounds()


@dataclass(frozen=True)
class KeyBounds:
    """What a join asks of a column: the smallest and the largest key of its build side, None if it has no key."""

    column: int
    keys: tuple[int, int] | None


class DeferredColumn:
    """A column of a morsel that is read when its values are first asked for."""

    def __init__(self, load: Callable[[], pa.Array]) -> None:
        """Remember how to read it."""
        self._load = load
        self._loaded: Column | None = None
        self._turn = Lock()

    @property
    def _column(self) -> Column:
        with self._turn:  # one for each column: that of `cached_property` is one for all, and threads read several
            if self._loaded is None:
                self._loaded = Column.of(self._load())
            return self._loaded

    @property
    def most_row_bytes(self) -> float:
        """Bytes that no row exceeds when it is gathered."""
        return self._column.most_row_bytes

    @property
    def fits_batch(self) -> bool:
        """Whether one batch holds all of it."""
        return self._column.fits_batch

    def add_sizes(self, rows: RowIds, missing: bool, sizes: Int64Array) -> None:
        """Add to `sizes` the bytes that each of `rows` takes when it is gathered."""
        self._column.add_sizes(rows, missing, sizes)

    def take(self, rows: RowIds | None, missing: bool) -> pa.Array:
        """Return the column at `rows` (see `Column.take`)."""
        return self._column.take(rows, missing)


@dataclass(frozen=True)
class Unit:
    """Row groups [first, last) of one file, which are read together, for a split with these partition values."""

    file: _File
    first: int
    last: int
    values: tuple[str | None, ...]


@dataclass
class ParquetScan:
    """A scan bound to the types of its columns: what Spark declares, in its Arrow types.

    `bounds`: rows whose key is outside need not come out. Row sets have at most `max_rows` rows, before any filter.
    `calendars`: files are to be checked for what Spark reads in another way. `planned`: the planner has done so, and
    only what does not show in their types is checked again, as other files may have come since.
    `buckets`: those that files lie in, unless they are local. `opened` remembers which files have been opened,
    `unchecked` which of them have been read since they were last known to be the same, and `text_bytes` what a value of
    a column of text took at most, on average of what was decoded at a time.
    """

    spec: ScanSpec
    schema: pa.Schema
    max_rows: int
    bounds: Sequence[KeyBounds] = ()
    calendars: Calendars | None = None
    planned: bool = False
    buckets: tuple[Bucket, ...] = ()
    metrics: ScanMetrics = field(default_factory=ScanMetrics)
    opened: dict[str, Identity] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)
    text_bytes: dict[int, float] = field(default_factory=dict)

    def row_sets(self, splits: Iterable[Split]) -> Iterator[RowSet]:
        """Yield the rows of these splits, none of them empty. Columns are those of the spec, in its order."""
        units = (unit for split in splits for unit in self.units(split))
        for columns in self._ahead(units) if self.buckets else (_UnitColumns(self, unit) for unit in units):
            yield from self._rows(columns)

    def table(self, splits: Sequence[Split], threads: int, check: Callable[[int, int], None]) -> pa.Table:
        """Read all rows of these splits into memory, in several threads. `check`: see `CollectedRows`."""
        with CollectedRows(check) as rows:
            return self.collect(splits, threads, rows)

    def collect(self, splits: Sequence[Split], threads: int, rows: CollectedRows) -> pa.Table:
        """Read all rows of these splits, in several threads, to where `rows` keeps them."""
        names = self.schema.names[: self.spec.outputs]

        def read(number: int, unit: Unit) -> None:
            with rows.turn():
                for position, batch in enumerate(self._batches(unit, names)):
                    rows.add((number, position), batch)

        with pool(threads) as executor:
            units = [unit for split in splits for unit in self.units(split)]
            try:
                for _ in executor.map(read, range(len(units)), units):
                    pass  # an error of any is raised here
            except BaseException:
                executor.shutdown(wait=True, cancel_futures=True)
                raise
        self.check_unchanged()
        return rows.table(pa.schema([self.schema.field(number) for number in range(self.spec.outputs)]))

    def identity(self, path: str) -> Identity:
        """Return which file lies there, as long as it is that file."""
        with _reading(path):
            return store_of(path, self.buckets).identity(path)

    def check_unchanged(self) -> None:
        """Make sure that what was read of each file is of one file. To be called before any of it is emitted.

        Raises:
            FileReadError: a file was replaced while it was read.
        """
        while self.unchecked:
            path = self.unchecked.pop()
            _check_same(path, self.opened[path], store_of(path, self.buckets))

    def units(self, split: Split) -> Iterator[Unit]:
        """Yield what is to be read of a split: row groups that it owns and that statistics do not rule out."""
        identity = self.opened.setdefault(split.path, self.identity(split.path))
        with _reading(split.path):
            file = _open(split.path, identity, self._names(), store_of(split.path, self.buckets))
        self.unchecked.add(split.path)
        if self.calendars is not None:
            self._check(file, self.calendars)
        owned = [number for number, (offset, size) in enumerate(file.extents) if split.owns(offset, size)]
        wanted = [number for number in owned if self._may_give_rows(file, number, split.values)]
        self.metrics.row_groups += len(wanted)
        self.metrics.row_groups_pruned += len(owned) - len(wanted)
        for first, last in _runs(wanted):
            sizes = [self._size(file, group) for group in range(first, last)]
            for start, stop in grouped(sizes, self.max_rows, MAX_MORSEL_BYTES):
                yield Unit(file, first + start, first + stop, split.values)

    def _ahead(self, units: Iterator[Unit]) -> Iterator[_UnitColumns]:
        """Yield the columns of each unit, those that the one before it needed on their way already.

        For files that answer late. Those on disk are read no faster so: other tasks use the cores meanwhile.
        """
        with pool(REQUESTS) as executor:

            def prepared(needed: Collection[int]) -> _UnitColumns | None:
                unit = next(units, None)
                if unit is None:
                    return None
                columns = _UnitColumns(self, unit)
                if not self._streams(unit) and _has_room(self._size_of(unit)[1]):
                    columns.start(needed, executor)
                return columns

            current = prepared(())
            needed: Collection[int] = ()
            try:
                while current is not None:
                    following = executor.submit(prepared, needed)
                    yield current
                    needed = current.needed
                    current = following.result()
            finally:
                executor.shutdown(wait=True, cancel_futures=True)

    def _rows(self, columns: _UnitColumns) -> Iterator[RowSet]:
        """Yield the rows of a unit that the filter keeps."""
        for rows in self._unfiltered(columns):
            self.metrics.rows += rows.length
            if self.spec.filter is None:
                yield rows
                continue
            tested = [ColumnRef(*place) for place in self.spec.filter.columns()]
            for piece in rows.pieces(tested, MAX_MORSEL_BYTES):
                kept = np.flatnonzero(holds(self.spec.filter, piece))
                if kept.size == piece.length:
                    yield piece
                elif kept.size:
                    yield piece.picked(kept)

    def _check(self, file: _File, calendars: Calendars) -> None:
        for number, column in enumerate(self.spec.columns):
            if column.partition is not None:
                continue
            target, leaf = self.schema.field(number).type, file.leaf(number)
            if self.planned:
                problem = None if leaf is None else rebased(file.metadata, column.name, leaf, target, calendars)
            else:
                problem = misread(file.metadata, file.called(number), column.name, leaf, target, calendars)
            if problem is not None:
                raise SchemaMismatchError(
                    f"workers do not read {file.path!r}: {problem}. Read it with spark.read.parquet"
                )

    def _names(self) -> tuple[tuple[str | None, ...], bool]:
        """Return the names of columns in files, None for partition values: a file's own such column means nothing."""
        names = (column.name if column.partition is None else None for column in self.spec.columns)
        return tuple(names), self.spec.case_sensitive

    def _batches(self, unit: Unit, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        columns = [ColumnRef(PROBE, number) for number in range(len(names))]
        for rows in self._rows(_UnitColumns(self, unit)):
            for piece in rows.pieces(columns, MAX_MORSEL_BYTES):
                yield pa.RecordBatch.from_arrays([piece.gather(column) for column in columns], names=list(names))

    def _unfiltered(self, columns: _UnitColumns) -> Iterator[RowSet]:
        unit = columns.unit
        rows, size = self._size_of(unit)
        # As many rows at a time as are like to keep within what a morsel may hold.
        most = max(1, min(self.max_rows, rows * MAX_MORSEL_BYTES // max(size, 1)))
        if self._streams(unit):
            yield from self._streamed(unit, most)
            return
        for start in range(0, rows, most):
            length = min(most, rows - start)
            parts = [columns.part(number, start, length) for number in range(len(self.spec.columns))]
            yield RowSet.of_morsel(parts, length)

    def _streamed(self, unit: Unit, length: int) -> Iterator[RowSet]:
        """Emit a row group that is too large to be held: all columns of some rows at a time."""
        order = sorted(set(self._leaves(unit.file)))
        self._count_bytes(unit, order)
        streamed = unit.file.stream(range(unit.first, unit.last), order, length)
        for batch in chain.from_iterable(map(_decoded_pieces, streamed)):
            self.unchecked.add(unit.file.path)
            columns = []
            for number in range(len(self.spec.columns)):
                leaf = unit.file.leaf(number)
                target = self.schema.field(number).type
                if leaf is None:
                    columns.append(Column.of(self.constant(unit.values, number, batch.num_rows)))
                else:
                    columns.append(Column.of(as_declared(batch.column(order.index(leaf)), target, unit.file.path)))
            yield RowSet.of_morsel(columns, batch.num_rows)

    def read(self, unit: Unit, number: int) -> pa.ChunkedArray | None:
        """Read one column of a unit; None if it is none of the file's."""
        leaf = unit.file.leaf(number)
        if leaf is None:
            return None
        self._count_bytes(unit, [leaf])
        groups = list(range(unit.first, unit.last))
        with _reading(unit.file.path):
            whole = unit.file.reader().read_row_groups(groups, column_indices=[leaf], use_threads=False).column(0)
        self.unchecked.add(unit.file.path)
        if number in self.text_bytes and not pa.types.is_dictionary(whole.type):
            self._remember(number, whole)
        return whole

    def part(self, unit: Unit, number: int, whole: pa.ChunkedArray | None, start: int, length: int) -> pa.Array:
        """Return rows `start` to `start + length` of a column that `read` has read (see `as_declared`)."""
        if whole is None:
            return self.constant(unit.values, number, length)
        array = contiguous(whole.slice(start, length))
        return as_declared(array, self.schema.field(number).type, unit.file.path)

    def constant(self, values: Sequence[str | None], number: int, length: int) -> pa.Array:
        """Return one of these partition values, or nulls for a column that the file lacks."""
        target = self.schema.field(number).type
        partition = self.spec.columns[number].partition
        text = None if partition is None else values[partition]
        return pa.nulls(length, target) if text is None else literal_array(text, target, length)

    def _leaves(self, file: _File) -> list[int]:
        return [leaf for leaf in map(file.leaf, range(len(self.spec.columns))) if leaf is not None]

    def _streams(self, unit: Unit) -> bool:
        """Return whether a unit is too large for its columns to be held."""
        rows, size = self._size_of(unit)
        return unit.last - unit.first == 1 and (rows > MAX_GROUP_ROWS or size > MAX_GROUP_BYTES)

    def _size_of(self, unit: Unit) -> tuple[int, int]:
        sizes = [self._size(unit.file, group) for group in range(unit.first, unit.last)]
        return sum(rows for rows, _ in sizes), sum(size for _, size in sizes)

    def _size(self, file: _File, number: int) -> tuple[int, int]:
        """Return the rows of a row group, and about as many bytes as the columns that are read have in memory."""
        rows = file.metadata.row_group(number).num_rows
        return rows, sum(self._decoded(file, number, column) for column in range(len(self.spec.columns)))

    def _decoded(self, file: _File, group: int, column: int) -> int:
        """Return about how many bytes a column of a row group has in memory.

        Of text in a dictionary the footer tells nothing: a few long values may stand for any number of rows, and a
        prefix that is stored once may begin all of them. So the first rows are decoded, once for all files, and
        whatever is read later counts as well.
        """
        leaf = file.leaf(column)
        if leaf is None:
            return 0
        chunk = file.metadata.row_group(group).column(leaf)
        encoded = int(chunk.total_uncompressed_size)
        if chunk.physical_type != "BYTE_ARRAY":
            return max(encoded, int(chunk.num_values) * _DECODED_WIDTHS[chunk.physical_type])
        if not any("DICTIONARY" in encoding or encoding == "DELTA_BYTE_ARRAY" for encoding in chunk.encodings):
            return encoded
        if column not in self.text_bytes:
            sample = next(file.stream([group], [leaf], _SAMPLED_ROWS)).column(0)
            self._remember(column, as_declared(sample, self.schema.field(column).type, file.path))
        return max(encoded, int(chunk.num_values * self.text_bytes[column]))

    def _remember(self, column: int, read: pa.Array | pa.ChunkedArray) -> None:
        self.text_bytes[column] = max(self.text_bytes.get(column, 0.0), read.nbytes / max(len(read), 1))

    def _count_bytes(self, unit: Unit, leaves: Sequence[int]) -> None:
        for number in range(unit.first, unit.last):
            group = unit.file.metadata.row_group(number)
            self.metrics.bytes += sum(group.column(leaf).total_compressed_size for leaf in leaves)

    def _may_give_rows(self, file: _File, number: int, values: tuple[str | None, ...]) -> bool:
        rows = file.metadata.row_group(number).num_rows
        if rows == 0:
            return False

        def bounds(column: int) -> ColumnBounds:
            if self.spec.columns[column].partition is not None:
                return _UNKNOWN
            return file.bounds(number, column, self.schema.field(column).type)

        if self.spec.filter is not None and not may_hold(self.spec.filter, bounds, rows):
            return False
        return all(may_meet(bounds(key.column), key.keys) for key in self.bounds)


class _UnitColumns:
    """The columns of a unit, each read once for all of its morsels: when it is first asked for, or ahead of that."""

    def __init__(self, scan: ParquetScan, unit: Unit) -> None:
        self.unit = unit
        self._scan = scan
        self._turn = Lock()
        self._whole: dict[int, pa.ChunkedArray | None] = {}
        self._started: dict[int, Future[pa.ChunkedArray | None]] = {}

    @property
    def needed(self) -> Collection[int]:
        """The columns that have been asked for."""
        with self._turn:
            return frozenset(self._whole)

    def start(self, numbers: Collection[int], pool: Executor) -> None:
        """Begin to read columns in threads of `pool`."""
        self._started = {number: pool.submit(self._scan.read, self.unit, number) for number in numbers}

    def part(self, number: int, start: int, length: int) -> DeferredColumn:
        """Return some rows of a column."""
        return DeferredColumn(lambda: self._scan.part(self.unit, number, self._read(number), start, length))

    def _read(self, number: int) -> pa.ChunkedArray | None:
        with self._turn:  # threads of a task may work on morsels of the same unit
            if number not in self._whole:
                started = self._started.pop(number, None)
                self._whole[number] = self._scan.read(self.unit, number) if started is None else started.result()
            return self._whole[number]


class _File:
    """A Parquet file: its footer, and where the columns of a scan are in it."""

    def __init__(self, path: str, store: FileStore, names: Sequence[str | None], case_sensitive: bool) -> None:
        self.path = path
        self._store = store
        self._source = store.source(path)
        opened = pq.ParquetFile(self._source)
        self.metadata = opened.metadata
        self.extents = [_extent(self.metadata.row_group(number)) for number in range(self.metadata.num_row_groups)]
        spelled = (lambda name: name) if case_sensitive else str.lower
        leaves = _top_level_leaves(opened.schema_arrow, spelled)
        called: dict[str, list[str]] = {}
        for name in opened.schema_arrow.names:
            called.setdefault(spelled(name), []).append(name)
        self._leaves = [None if name is None else leaves.get(spelled(name)) for name in names]
        self._called = [[] if name is None else called.get(spelled(name), []) for name in names]
        opened.close()

    def leaf(self, column: int) -> int | None:
        """Return the number of the Parquet column that holds column number `column` of the scan, None if none does."""
        return self._leaves[column]

    def called(self, column: int) -> list[str]:
        """Return the names of all columns, nested ones too, that column number `column` of the scan may mean."""
        return self._called[column]

    def reader(self, streams: bool = False) -> Any:
        """Open the file once more: threads do not share a reader. What is remote is requested in few large pieces."""
        return pq.ParquetFile(
            self._source,
            metadata=self.metadata,
            coerce_int96_timestamp_unit="us",
            pre_buffer=self._store.is_remote and not streams,
            buffer_size=_REQUESTED_BYTES if self._store.is_remote and streams else 0,
        ).reader

    def stream(self, groups: Sequence[int], leaves: Sequence[int], rows: int) -> Iterator[pa.RecordBatch]:
        """Read Parquet columns of row groups, so many rows at a time."""
        with _reading(self.path):
            batches = self.reader(streams=True).iter_batches(
                rows, row_groups=list(groups), column_indices=list(leaves), use_threads=False
            )
        while True:
            with _reading(self.path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def bounds(self, group: int, column: int, target: pa.DataType) -> ColumnBounds:
        """Return what statistics say of a column in a row group."""
        leaf = self._leaves[column]
        if leaf is None:
            return _UNKNOWN
        chunk = self.metadata.row_group(group).column(leaf)
        statistics = chunk.statistics
        if statistics is None:
            return _UNKNOWN
        nulls = statistics.null_count if statistics.has_null_count else None
        convert = _bound_of(chunk.physical_type, self.metadata.schema.column(leaf), target)
        if convert is None or not statistics.has_min_max:
            return ColumnBounds(nulls=nulls)
        return ColumnBounds(convert(statistics.min_raw), convert(statistics.max_raw), nulls)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Say of which file an error speaks."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise FileReadError.of(path, error) from error


def _check_same(path: str, identity: Identity, store: FileStore) -> None:
    """Make sure that no other file has come in the place of the one that was read.

    Raises:
        FileReadError: one has.
    """
    with _reading(path), suppress(FileNotFoundError):  # then nothing has
        if store.identity(path) != identity:
            raise FileReadError(f"cannot read {path!r}: it was replaced while it was read")


def _has_room(size: int) -> bool:
    """Return whether so many bytes, and what they become when they are decoded, are little of the memory there is."""
    headroom = process_probe().headroom()
    return headroom is None or size < headroom.bytes * _AHEAD_OF_HEADROOM


@lru_cache(_OPEN_FILES)
def _open(path: str, identity: Identity, names: tuple[tuple[str | None, ...], bool], store: FileStore) -> _File:
    return _File(path, store, *names)


def _extent(group: Any) -> tuple[int, int]:
    """Return where a row group begins and how many bytes it takes, as Spark's reader reckons."""
    first = group.column(0)
    begins = [first.data_page_offset]
    if first.has_dictionary_page and first.dictionary_page_offset:
        begins.append(first.dictionary_page_offset)
    return min(begins), sum(group.column(number).total_compressed_size for number in range(group.num_columns))


def _top_level_leaves(schema: pa.Schema, spelled: Callable[[str], str]) -> dict[str, int]:
    """Return the Parquet column number of each top-level column that is not nested."""
    found: dict[str, int] = {}
    at = 0
    for column in schema:
        width = _leaf_count(column.type)
        if not pa.types.is_nested(column.type):
            found.setdefault(spelled(column.name), at)
        at += width
    return found


def _leaf_count(arrow_type: pa.DataType) -> int:
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _leaf_count(arrow_type.storage_type)
    if not pa.types.is_nested(arrow_type):
        return 1
    return sum(_leaf_count(arrow_type.field(number).type) for number in range(arrow_type.num_fields))


def _bound_of(physical: str, column: Any, target: pa.DataType) -> Callable[[Any], Any] | None:
    """Return how raw statistics become bounds, None where they say nothing about the values as `target`."""
    if physical in ("INT32", "INT64"):
        if pa.types.is_decimal(target):
            return lambda raw: Decimal(raw).scaleb(-target.scale)
        if pa.types.is_timestamp(target):
            per_unit = {"MICROS": 1, "MILLIS": 1000}
            unit = next((factor for name, factor in per_unit.items() if name in _unit(column)), None)
            return None if unit is None else lambda raw: raw * unit
        if pa.types.is_signed_integer(target) or pa.types.is_date32(target):
            return lambda raw: raw
    if physical == "BYTE_ARRAY" and pa.types.is_string(target):
        return lambda raw: raw if isinstance(raw, bytes) else raw.encode()
    return None


def _unit(column: Any) -> str:
    """Return what a column's logical type says of its time unit, in capitals."""
    text = str(column.logical_type).upper()
    return text.replace("MICROSECONDS", "MICROS").replace("MILLISECONDS", "MILLIS")


def _decoded_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of at most a morsel's bytes, decoding columns that a file declares as dictionaries.

    Their rows say nothing of how long the texts are that they stand for, so none is decoded but in a piece that holds
    as many of the longest.
    """
    widest = sum(_longest(column.dictionary) for column in batch.columns if pa.types.is_dictionary(column.type))
    most = max(1, MAX_MORSEL_BYTES // widest) if widest else max(1, batch.num_rows)
    for start in range(0, batch.num_rows, most):
        piece = batch.slice(start, most)
        if widest:
            columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in piece.columns]
            piece = pa.RecordBatch.from_arrays(columns, names=piece.schema.names)
        yield from within_bytes(piece, MAX_MORSEL_BYTES)


def _longest(values: pa.Array) -> int:
    """Return the bytes of the longest of some texts; of what all have the same size, that."""
    try:
        return int(pc.max(pc.binary_length(values)).as_py() or 1)
    except pa.ArrowNotImplementedError:
        return max(1, int(values.nbytes) // max(len(values), 1))


def as_declared(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return what a file holds in the Arrow type of the Spark type that the query takes it for.

    The planner has made sure that both are the same values; they may be spelled differently (dictionaries, units).
    Strings that 32-bit offsets do not reach keep 64-bit ones: `RowSet` has them copied in parts.

    Raises:
        SchemaMismatchError: they are not, as the file has been replaced since.
        FileReadError: a value is out of the type's range.
    """
    if array.type == target:
        return array
    try:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if pa.types.is_dictionary(array.type):
            array = _decoded(array)
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(target):
            # Whether a zone is named is no matter of the values: they count from the epoch in UTC, or are declared so.
            with _reading(path):  # values that microseconds do not reach
                return array.cast(pa.timestamp("us", tz=array.type.tz)).view(target)
        if _is_respelled(array.type, target):
            return array.cast(target if array.nbytes <= MAX_VAR_BYTES else wide_type(target) or target)
        problem = "these are other values"
    except (pa.ArrowException, TypeError) as error:
        problem = str(error)
    raise SchemaMismatchError(
        f"{path} holds {array.type} where the query was planned for {target}: was it replaced? ({problem})"
    )


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    try:
        return array.dictionary_decode()
    except pa.ArrowInvalid:  # more bytes than 32-bit offsets reach
        wide = wide_type(array.dictionary.type)
        if wide is None:
            raise
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(wide)).dictionary_decode()


def _is_respelled(found: pa.DataType, target: pa.DataType) -> bool:
    """Return whether two types are of the same values. Arrow would also cast text to numbers, and numbers to dates."""
    if found == target:
        return True
    if pa.types.is_signed_integer(target):
        # What Arrow knows as a duration is a number to Spark; and some numbers are wanted wider than they are stored.
        if pa.types.is_duration(found):
            return bool(target == pa.int64())
        return bool(pa.types.is_signed_integer(found) and found.bit_width <= target.bit_width)
    if pa.types.is_decimal(target) and pa.types.is_decimal(found):
        return bool(found.precision == target.precision and found.scale == target.scale)
    return any(found in spellings and target in spellings for spellings in _SPELLINGS)


_SPELLINGS = (
    (pa.string(), pa.large_string(), pa.string_view()),
    (pa.binary(), pa.large_binary(), pa.binary_view()),
    (pa.date32(), pa.date64()),
)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs [first, last) of consecutive numbers."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield numbers[start], numbers[at - 1] + 1
            start = at
