"""One partition of an exchange, as read by its join task: build rows and probe rows.

Each build side is read completely before the first probe row is joined.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.build_sides.rows_on_disk import create_row_collector, move_to_disk, share_of_headroom
from sparkext.memory.freed import release_memory
from sparkext.plans.pipeline.spec import MARKS
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.types import conform_columns
from sparkext.shuffle.blocks import read_frames
from sparkext.shuffle.map_output import Segment, rows_of_segments
from sparkext.shuffle.packed_rows import RowUnpacker
from sparkext.storage.local_folder import local_folder
from sparkext.storage.spill import SpillBuffer

_OWNED_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class PartitionSchemas:
    """The schemas of the probe side, and of build sides by join number.

    `owns_build`: whether the first join emits its unmatched build rows.
    """

    probe: pa.Schema
    builds: Mapping[int, pa.Schema]
    owns_build: bool


class PartitionRows(ABC):
    """The received rows of a partition. They have to be closed."""

    @abstractmethod
    def probe(self) -> Iterator[pa.RecordBatch]:
        """Yield the probe rows. Call this once."""

    @abstractmethod
    def build(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the build rows of join `number`. Call this once per join."""

    def copies(self) -> Iterator[pa.RecordBatch]:
        """Yield additional rows of the first build side, which other partitions own: rows of split hot buckets."""
        return iter(())

    def marks(self, read: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield probe rows that other partitions join. They mark matches of the build rows that this partition owns.

        Columns without a number in `read` may be null.
        """
        return iter(())

    @abstractmethod
    def close(self) -> None:
        """Release the rows."""


class BlockRows(PartitionRows):
    """Rows received as blocks of both sides in any order (see `PartitionTask`). All blocks are buffered first."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schemas: PartitionSchemas) -> None:
        """Read all blocks."""
        self._schemas = schemas
        self._probe, self._build = (SpillBuffer[pa.Buffer](share_of_headroom, local_folder()) for _ in range(2))
        for is_build, block in read_frames(batches):
            (self._build if is_build else self._probe).add((0, 0), block, block.size)

    def probe(self) -> Iterator[pa.RecordBatch]:
        """Yield the probe rows."""
        return RowUnpacker(self._schemas.probe).batches(self._probe.values())

    def build(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the only build side."""
        return RowUnpacker(self._schemas.builds[number]).batches(self._build.values())

    def close(self) -> None:
        """Close the spill files."""
        self._probe.close()
        self._build.close()


class FileRows(PartitionRows):
    """Rows in the files of map tasks. `batches` has one row, a JSON text with their locations."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schemas: PartitionSchemas) -> None:
        """Read the locations."""
        texts = [text for batch in batches for text in batch.column(0).to_pylist()]
        locations = json.loads(texts[0]) if texts else {"probe": [], "builds": {}, "copies": [], "marks": []}
        self._schemas = schemas
        self._probe, self._copies, self._marks = (
            _parse_segments(locations[name]) for name in ("probe", "copies", "marks")
        )
        self._builds = {int(number): _parse_segments(segments) for number, segments in locations["builds"].items()}

    def probe(self) -> Iterator[pa.RecordBatch]:
        """Yield the probe rows."""
        return rows_of_segments(self._probe, self._schemas.probe)

    def build(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the build rows of join `number`."""
        return rows_of_segments(self._builds.get(number, []), self._schemas.builds[number])

    def copies(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the first build side that other partitions own."""
        return rows_of_segments(self._copies, self._schemas.builds[0]) if self._copies else iter(())

    def marks(self, read: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield the probe rows that other partitions join; columns without a number in `read` are null."""
        return rows_of_segments(self._marks, self._schemas.probe, read)

    def close(self) -> None:
        """Do nothing: Spark manages the files."""


def _parse_segments(locations: list[list[Any]]) -> list[Segment]:
    return [Segment(*segment) for segment in locations]


class Partition:
    """The rows of a partition, in the form that a pipeline reads."""

    def __init__(self, schemas: PartitionSchemas, rows: PartitionRows) -> None:
        """Bind the rows to their schemas."""
        self._schemas = schemas
        self._rows = rows
        self._owned = 0

    def build_sides(self, recipes: Mapping[int, IndexRecipe]) -> dict[int, BuildSide]:
        """Index the rows of each build side, for this task alone."""
        return {number: self._build_side(number, recipes[number]) for number in self._schemas.builds}

    def _build_side(self, number: int, recipe: IndexRecipe) -> BuildSide:
        schema = self._schemas.builds[number]
        with create_row_collector() as collected:
            for position, batch in enumerate(self._rows_of(number)):
                collected.add((position, 0), conform_columns(batch.columns, schema))
            table = collected.table(schema)
            columns = (
                move_to_disk(table, local_folder())
                if collected.spilled
                else [make_contiguous(column) for column in table.columns]
            )
        rows = table.num_rows
        del table
        if collected.spilled:
            release_memory()
        return replace(index_in_memory(rows, columns, recipe), is_partition=True)

    def _rows_of(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a build side: the rows of this partition, then copies of rows of other partitions."""
        if not (self._schemas.owns_build and number == 0):
            yield from self._rows.build(number)
            return
        for batch in self._rows.build(number):
            self._owned += batch.num_rows
            yield batch
        yield from self._rows.copies()

    def probe_batches(self, keys: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield the probe rows. If the join emits unmatched build rows, an owner column is the first column.

        `keys`: the probe columns that the first join reads. See `PipelineSpec.owner_columns`: this task owns all build
        rows except the copies, and receives all probe rows of their keys.
        """
        batches = self._rows.probe()
        if not self._schemas.owns_build:
            yield from batches
            return
        for start in range(0, self._owned, _OWNED_AT_ONCE):
            ids = pa.array(np.arange(start, min(start + _OWNED_AT_ONCE, self._owned)), pa.int64())
            yield self._prepend_owners(ids, [pa.nulls(len(ids), kind) for kind in self._schemas.probe.types])
        for batch in batches:
            yield self._prepend_owners(pa.nulls(batch.num_rows, pa.int64()), batch.columns)
        for batch in self._rows.marks(keys):
            yield self._prepend_owners(pa.array(np.full(batch.num_rows, MARKS)), batch.columns)

    def _prepend_owners(self, owners: pa.Array, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([owners, *columns], names=["owner", *self._schemas.probe.names])
