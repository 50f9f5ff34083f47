"""One slot of an exchange, as the task that joins it sees it: the rows of the build side, and those of the probe side.

Cells of both sides come mixed. All of the build side is there before the first row is joined, so those of the probe
side wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.build_sides.rows_on_disk import on_disk, share_of_headroom
from sparkext.exchange.cells import cells_in
from sparkext.exchange.held_cells import HeldCells
from sparkext.memory.freed import release
from sparkext.rows.collected import CollectedRows
from sparkext.rows.contiguous import contiguous
from sparkext.rows.types import conform

_OWNED_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class SlotSchemas:
    """The columns of both sides. `owns_build`: the join emits those build rows that no probe row matched."""

    probe: pa.Schema
    build: pa.Schema
    owns_build: bool


class Slot:
    """All cells of a slot, from the batches that bring them. To be closed."""

    def __init__(self, schemas: SlotSchemas, batches: Iterable[pa.RecordBatch]) -> None:
        """Take all cells."""
        self._schemas = schemas
        self._rows = 0
        self._build = HeldCells(share_of_headroom)
        self._probe = HeldCells(share_of_headroom)
        for batch in batches:
            for is_build, cell in cells_in(batch):
                (self._build if is_build else self._probe).add(cell)

    def close(self) -> None:
        """Let go of what was held in files."""
        self._build.close()
        self._probe.close()

    def build_side(self, recipe: IndexRecipe) -> BuildSide:
        """Index the rows of the build side, for this task alone; they are gone from here then."""
        schema = self._schemas.build
        with CollectedRows(lambda rows, size: None, share_of_headroom) as collected:
            for number, batch in enumerate(self._build.batches()):
                arrays = [conform(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
                collected.add((number, 0), pa.RecordBatch.from_arrays(arrays, schema=schema))
            table = collected.table(schema)
            columns = on_disk(table, None) if collected.spilled else [contiguous(column) for column in table.columns]
        self._rows = table.num_rows
        if collected.spilled:
            release()
        return index_in_memory(table.num_rows, columns, recipe)

    def probe_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the probe side, behind the ids of the build rows where the join is to emit these.

        See `PipelineSpec.owner_columns`: this task has all rows of its keys, so it owns each build row.
        """
        if not self._schemas.owns_build:
            yield from self._probe.batches()
            return
        batches = self._probe.batches()
        first = next(batches, None)
        # Nested types have more than one spelling: all batches have that of the rows.
        types = self._schemas.probe.types if first is None else first.schema.types
        names = ["owner", *self._schemas.probe.names]
        for start in range(0, self._rows, _OWNED_AT_ONCE):
            ids = pa.array(np.arange(start, min(start + _OWNED_AT_ONCE, self._rows)), pa.int64())
            yield pa.RecordBatch.from_arrays([ids, *(pa.nulls(len(ids), kind) for kind in types)], names=names)
        for batch in batches if first is None else chain([first], batches):
            yield pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows, pa.int64()), *batch.columns], names=names)
