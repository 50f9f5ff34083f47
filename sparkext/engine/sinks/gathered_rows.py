"""Result rows for the JVM. Their payload is gathered once, here, after all joins and filters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from sparkext.engine.operator_budget import OperatorBudget
from sparkext.errors import SchemaMismatchError
from sparkext.kernels.columns.gather import Column
from sparkext.plans.adaptive.output_size import FINAL_OUTPUT_COPIES
from sparkext.plans.pipeline.spec import PROBE, ColumnRef
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import conform

_VALUE_BYTES = 8.0  # assumed for columns whose values are not known yet: probe columns, and columns that joins add


class GatheredRows:
    """Emits record batches with the columns `outputs`; `schema` has their declared types.

    `build_columns`: the columns of each build side, by column number.

    Raises
    ------
    SchemaMismatchError
        A column does not have the declared type.
    """

    copies = FINAL_OUTPUT_COPIES

    def __init__(
        self, outputs: Sequence[ColumnRef], schema: pa.Schema, build_columns: Sequence[Mapping[int, Column]]
    ) -> None:
        """Bind it to the output columns."""
        self.outputs = outputs
        self._schema = schema
        columns_by_source = dict(enumerate(build_columns, PROBE + 1))
        values = [columns_by_source.get(output.source, {}).get(output.column) for output in outputs]
        self.row_bytes = sum(_VALUE_BYTES if column is None else column.value_bytes for column in values)

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Emit the payload of these rows, in batches within the budget."""
        start = 0
        while start < rows.length:
            most = budget.next()
            started = time.perf_counter()
            piece = rows.next_piece(start, most.rows, self.outputs, most.bytes)
            batch = self.batch(piece)
            budget.add_time_since(started)
            budget.observe(piece.length, piece.length, batch.nbytes)
            start += piece.length
            yield batch

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Emit nothing: `process` emits all rows."""
        return iter(())

    def batch(self, rows: RowSet) -> pa.RecordBatch:
        """Gather all output columns."""
        arrays = [self.column(rows, number) for number in range(len(self.outputs))]
        # Rows without columns: nulls if the schema declares a column, else structs without fields.
        if not arrays and len(self._schema):
            arrays = [pa.nulls(rows.length, self._schema.field(0).type)]
        if arrays:
            return pa.RecordBatch.from_arrays(arrays, names=self._schema.names)
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows.length, [None]))

    def column(self, rows: RowSet, number: int) -> pa.Array:
        """Gather output column `number` and convert it to the declared type."""
        array = rows.gather(self.outputs[number])
        field = self._schema.field(number)
        try:
            return conform(array, field.type)
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"output column {field.name!r} is declared as {field.type}, the pipeline produced {array.type}: {error}"
            ) from error
