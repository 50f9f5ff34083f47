"""An opened Parquet file: its footer, the positions of a scan's columns in it, and units of its row groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkext.errors import FileReadError
from sparkext.parquet.fetched_ranges import FetchedRanges, Range, read_last_part
from sparkext.parquet.file_stores import FileStore, Identity
from sparkext.parquet.statistics import UNKNOWN, read_column_bounds
from sparkext.plans.pipeline.scan import ColumnBounds

_OPEN_FILES = 64
"""Number of files kept open, with the contents of small remote ones: up to a megabyte each."""

_FIELD_ID = b"PARQUET:field_id"
"""The metadata key under which Arrow stores a column's field id."""

_DICTIONARY_BYTES = 2
"""Bytes per value up to which a column of strings is assumed to be dictionary-encoded: the length of a plain value
alone takes 4 bytes.

Such a column is read as dictionary indexes, and decoded afterwards. For 0.9 million values of a dictionary of 7
strings, Arrow takes 18 ms to decode them to the views that the file declares, and 6 ms from views to strings; reading
the indexes takes 1 ms, and decoding them to strings 7 ms.
"""

_REQUESTED_BYTES = 8 << 20
"""Bytes per request for one column of a remote file that is streamed."""


class OpenedFile:
    """A Parquet file: its footer, and the positions of a scan's columns in it."""

    def __init__(
        self, path: str, identity: Identity, store: FileStore, names: Sequence[str | int | None], case_sensitive: bool
    ) -> None:
        self.path = path
        self._store = store
        self._source = store.source(path, identity)
        last = read_last_part(self._source) if store.is_remote else None
        opened = pq.ParquetFile(self._source if last is None else FetchedRanges(self._source, [last]).file())
        self._parts = [last] if last is not None and last.start == 0 else []
        self.metadata = opened.metadata
        self.extents = [
            _locate_row_group(self.metadata.row_group(number)) for number in range(self.metadata.num_row_groups)
        ]
        self.first_rows = _compute_first_rows(self.metadata)
        matches = [[] if name is None else _find_top_level(opened.schema_arrow, name, case_sensitive) for name in names]
        leaves = _find_top_level_leaves(opened.schema_arrow)
        self._leaves = [
            next((leaves[position] for position in positions if position in leaves), None) for positions in matches
        ]
        self._matching_names = [
            [opened.schema_arrow.names[position] for position in positions] for positions in matches
        ]
        self._in_dictionaries = self._texts_in_dictionaries()
        opened.close()

    def _texts_in_dictionaries(self) -> list[str]:
        """Return the paths of the scan's string columns that are dictionary-encoded in all row groups."""
        groups = [self.metadata.row_group(number) for number in range(self.metadata.num_row_groups)]
        return [
            self.metadata.schema.column(leaf).path
            for leaf in dict.fromkeys(leaf for leaf in self._leaves if leaf is not None)
            if self.metadata.schema.column(leaf).physical_type == "BYTE_ARRAY"
            if str(self.metadata.schema.column(leaf).logical_type) == "String"
            if all(_is_dictionary_encoded(group.column(leaf)) for group in groups)
        ]

    def leaf(self, column: int) -> int | None:
        """Return the index of the Parquet column for column `column` of the scan, None if the file lacks it."""
        return self._leaves[column]

    def match_names(self, column: int) -> list[str]:
        """Return the names of the file's top-level columns, nested or not, that match column `column` of the scan."""
        return self._matching_names[column]

    def request_columns(self, groups: Iterable[int], leaves: Sequence[int], pool: Executor) -> FetchedRanges:
        """Request Parquet columns of row groups from a remote file."""
        chunks = (self.metadata.row_group(group).column(leaf) for group in groups for leaf in leaves)
        return FetchedRanges.begun(self._source, map(_locate_chunk, chunks), pool, self._parts)

    def reader(self, streams: bool = False, fetched: FetchedRanges | None = None) -> Any:
        """Open the file again, as threads do not share a reader. Remote files are requested in few large ranges."""
        if fetched is None and self._parts:
            fetched = FetchedRanges(self._source, self._parts)
        return pq.ParquetFile(
            self._source if fetched is None else fetched.file(),
            metadata=self.metadata,
            coerce_int96_timestamp_unit="us",
            pre_buffer=self._store.is_remote and not streams and fetched is None,
            buffer_size=_REQUESTED_BYTES if self._store.is_remote and streams else 0,
            read_dictionary=None if streams else self._in_dictionaries,
        ).reader

    def stream(self, groups: Sequence[int], leaves: Sequence[int], rows: int) -> Iterator[pa.RecordBatch]:
        """Read Parquet columns of row groups in batches of `rows` rows."""
        with wrap_read_errors(self.path):
            batches = self.reader(streams=True).iter_batches(
                rows, row_groups=list(groups), column_indices=list(leaves), use_threads=False
            )
        while True:
            with wrap_read_errors(self.path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def bounds(self, group: int, column: int, target: pa.DataType) -> ColumnBounds:
        """Return the bounds of a column in a row group, according to its statistics."""
        leaf = self._leaves[column]
        return UNKNOWN if leaf is None else read_column_bounds(self.metadata, group, leaf, target)


@dataclass(frozen=True)
class Unit:
    """Row groups [first, last) of one file, which are read together for a split (see `Split` for its values)."""

    file: OpenedFile
    first: int
    last: int
    values: tuple[str | None, ...]
    deleted: str = ""

    @property
    def first_row(self) -> int:
        """The index of its first row in the file."""
        return self.file.first_rows[self.first]


@lru_cache(_OPEN_FILES)
def open_parquet_file(
    path: str, identity: Identity, names: tuple[tuple[str | int | None, ...], bool], store: FileStore
) -> OpenedFile:
    """Return this file of a store, cached while open. `names`: the names of a scan's columns, and case sensitivity."""
    return OpenedFile(path, identity, store, *names)


@contextmanager
def wrap_read_errors(path: str) -> Iterator[None]:
    """Convert errors to `FileReadError`s that name the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise FileReadError.of(path, error) from error


def check_same(path: str, identity: Identity, store: FileStore) -> None:
    """Check that a file has not been replaced since it was read.

    Raises
    ------
    FileReadError
        The file has been replaced.
    """
    with wrap_read_errors(path), suppress(FileNotFoundError):  # a deleted file was not replaced
        if store.identity(path) != identity:
            raise FileReadError(f"cannot read {path!r}: it was replaced while it was read")


def _is_dictionary_encoded(chunk: Any) -> bool:
    return bool(chunk.has_dictionary_page and chunk.total_uncompressed_size <= _DICTIONARY_BYTES * chunk.num_values)


def _locate_row_group(group: Any) -> tuple[int, int]:
    """Return the offset of a row group, and its size in bytes, as Spark's reader computes them."""
    begin, _ = _locate_chunk(group.column(0))
    return begin, sum(group.column(number).total_compressed_size for number in range(group.num_columns))


def _locate_chunk(chunk: Any) -> Range:
    begins = [chunk.data_page_offset]
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        begins.append(chunk.dictionary_page_offset)
    return min(begins), min(begins) + chunk.total_compressed_size


def _compute_first_rows(metadata: Any) -> list[int]:
    """Return the index in the file of each row group's first row."""
    counts = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    return list(accumulate(counts, initial=0))[:-1]


def _find_top_level(schema: pa.Schema, name: str | int, case_sensitive: bool) -> list[int]:
    """Return the positions of the top-level columns that match a name or a field id."""
    if isinstance(name, int):
        field_id = str(name).encode()
        return [
            position for position, column in enumerate(schema) if (column.metadata or {}).get(_FIELD_ID) == field_id
        ]
    spelled = (lambda name: name) if case_sensitive else str.lower
    return [position for position, other in enumerate(schema.names) if spelled(other) == spelled(name)]


def _find_top_level_leaves(schema: pa.Schema) -> dict[int, int]:
    """Return the index of the Parquet column for each top-level column that is not nested, by its position."""
    widths = [_count_leaves(column.type) for column in schema]
    starts = [*accumulate(widths, initial=0)]
    return {position: starts[position] for position, column in enumerate(schema) if not pa.types.is_nested(column.type)}


def _count_leaves(arrow_type: pa.DataType) -> int:
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _count_leaves(arrow_type.storage_type)
    if not pa.types.is_nested(arrow_type):
        return 1
    return sum(_count_leaves(arrow_type.field(number).type) for number in range(arrow_type.num_fields))
