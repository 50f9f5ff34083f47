"""One slot of an exchange, as the task that joins it sees it: the rows of build sides, and those of the probe side.

All of a build side is there before the first row is joined.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.build_sides.rows_on_disk import on_disk, share_of_headroom
from sparkext.exchange.cells import cells_in
from sparkext.exchange.held_cells import HeldCells
from sparkext.exchange.map_output import Segment, rows_of_segments
from sparkext.memory.freed import release
from sparkext.plans.spec import MARKS
from sparkext.rows.collected import CollectedRows
from sparkext.rows.contiguous import contiguous
from sparkext.rows.types import conformed
from sparkext.storage.local_folder import local_folder

_OWNED_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class SlotSchemas:
    """The columns of the probe side, and of build sides by the numbers of their joins.

    `owns_build`: the first join emits those build rows that no probe row matched.
    """

    probe: pa.Schema
    builds: Mapping[int, pa.Schema]
    owns_build: bool


class SlotRows(Protocol):
    """The rows of a slot, wherever they wait. To be closed."""

    def probe(self) -> Iterator[pa.RecordBatch]:
        """Yield those of the probe side, once."""
        ...

    def build(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield those of the build side of join `number`, once."""
        ...

    def copies(self) -> Iterator[pa.RecordBatch]:
        """Yield more of the first build side, which another slot owns: the hot line that they are of is split."""
        ...

    def marks(self, read: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield what others join of the probe side: it tells which build rows of this slot's are matched there.

        Nobody looks at columns without a number in `read`.
        """
        ...

    def close(self) -> None:
        """Let go of them."""
        ...


class CellRows:
    """Rows that come as cells, those of both sides mixed: all of them wait here until they are asked for."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take all cells."""
        self._probe, self._build = (HeldCells(share_of_headroom, local_folder()) for _ in range(2))
        for batch in batches:
            for is_build, cell in cells_in(batch):
                (self._build if is_build else self._probe).add(cell)

    def probe(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the probe side."""
        return self._probe.batches()

    def build(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the only build side."""
        return self._build.batches()

    def copies(self) -> Iterator[pa.RecordBatch]:
        """Yield nothing: no line is split."""
        return iter(())

    def marks(self, read: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield nothing: no line is split."""
        return iter(())

    def close(self) -> None:
        """Let go of what was held in files."""
        self._probe.close()
        self._build.close()


class FileRows:
    """Rows in the files of map tasks. `batches` has one row, a text that says where they lie."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schemas: SlotSchemas) -> None:
        """Read the text."""
        told = [text for batch in batches for text in batch.column(0).to_pylist()]
        where = json.loads(told[0]) if told else {"probe": [], "builds": {}, "copies": [], "marks": []}
        self._schemas = schemas
        self._probe, self._copies, self._marks = (_segments(where[name]) for name in ("probe", "copies", "marks"))
        self._builds = {int(number): _segments(segments) for number, segments in where["builds"].items()}

    def probe(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the probe side."""
        return rows_of_segments(self._probe, self._schemas.probe)

    def build(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the build side of join `number`."""
        return rows_of_segments(self._builds.get(number, []), self._schemas.builds[number])

    def copies(self) -> Iterator[pa.RecordBatch]:
        """Yield what others own of the first build side."""
        return rows_of_segments(self._copies, self._schemas.builds[0]) if self._copies else iter(())

    def marks(self, read: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield what others join of the probe side; other columns than those to be read are null."""
        return rows_of_segments(self._marks, self._schemas.probe, read)

    def close(self) -> None:
        """Do nothing: the files belong to Spark."""


def _segments(told: list[list[Any]]) -> list[Segment]:
    return [Segment(*segment) for segment in told]


class Slot:
    """The rows of a slot as a pipeline takes them."""

    def __init__(self, schemas: SlotSchemas, rows: SlotRows) -> None:
        """Bind them to what they are."""
        self._schemas = schemas
        self._rows = rows
        self._owned = 0

    def build_sides(self, recipes: Mapping[int, IndexRecipe]) -> dict[int, BuildSide]:
        """Index the rows of each build side, for this task alone."""
        return {number: self._build_side(number, recipes[number]) for number in self._schemas.builds}

    def _build_side(self, number: int, recipe: IndexRecipe) -> BuildSide:
        schema = self._schemas.builds[number]
        folder = local_folder()
        with CollectedRows(lambda rows, size: None, share_of_headroom, folder) as collected:
            for place, batch in enumerate(self._rows_of(number)):
                collected.add((place, 0), conformed(batch.columns, schema))
            table = collected.table(schema)
            columns = on_disk(table, folder) if collected.spilled else [contiguous(column) for column in table.columns]
        rows = table.num_rows
        del table
        if collected.spilled:
            release()
        return replace(index_in_memory(rows, columns, recipe), is_partition=True)

    def _rows_of(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a build side: what this slot owns, before what others do."""
        if not (self._schemas.owns_build and number == 0):
            yield from self._rows.build(number)
            return
        for batch in self._rows.build(number):
            self._owned += batch.num_rows
            yield batch
        yield from self._rows.copies()

    def probe_batches(self, keys: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the probe side, behind the ids of the build rows where the join is to emit these.

        `keys`: the columns of the probe side that the first join looks at. See `PipelineSpec.owner_columns`: this task
        owns each build row but the copies, and sees all rows of their keys.
        """
        batches = self._rows.probe()
        if not self._schemas.owns_build:
            yield from batches
            return
        first = next(batches, None)
        # Nested types have more than one spelling: all batches have that of the rows.
        types = self._schemas.probe.types if first is None else first.schema.types
        for start in range(0, self._owned, _OWNED_AT_ONCE):
            ids = pa.array(np.arange(start, min(start + _OWNED_AT_ONCE, self._owned)), pa.int64())
            yield self._behind(ids, [pa.nulls(len(ids), kind) for kind in types])
        for batch in batches if first is None else chain([first], batches):
            yield self._behind(pa.nulls(batch.num_rows, pa.int64()), batch.columns)
        for batch in self._rows.marks(keys):
            yield self._behind(pa.array(np.full(batch.num_rows, MARKS)), batch.columns)

    def _behind(self, owners: pa.Array, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([owners, *columns], names=["owner", *self._schemas.probe.names])
