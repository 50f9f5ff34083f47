"""Columns as one array each, even if their strings exceed the range of 32-bit offsets."""

from __future__ import annotations

import pyarrow as pa

from sparkext.errors import BuildSideTooLargeError
from sparkext.kernels.columns.gather import MAX_VAR_BYTES


def make_contiguous(column: pa.Array | pa.ChunkedArray, name: str = "") -> pa.Array:
    """Return a column as one array, with 64-bit string offsets if 32 bits do not suffice.

    Raises
    ------
    BuildSideTooLargeError
        The column has more nested elements, or bytes of nested strings, than one array can hold.
    """
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    is_wide = needs_wide_offsets(column)
    try:
        return (column.cast(widen_type(column.type)) if is_wide else column).combine_chunks()
    except pa.ArrowInvalid as error:  # offsets overflow; only columns of strings can be widened here
        raise BuildSideTooLargeError(
            f"{f'column {name!r}' if name else 'a column'} of type {column.type} has more than 2^31 nested elements"
            " or bytes, the limit of an Arrow array. Select fewer columns or filter the build side."
        ) from error


def combine_table_chunks(table: pa.Table) -> pa.Table:
    """Return a table in which each column is one array."""
    columns = [make_contiguous(column) for column in table.columns]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def needs_wide_offsets(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether one array of all rows has, or would have, more bytes than 32-bit offsets can address."""
    if isinstance(column, pa.Array):
        return bool(pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type))
    wide_type = widen_type(column.type)
    return wide_type is not None and sum(_count_var_bytes(chunk) for chunk in column.chunks) > MAX_VAR_BYTES


def widen_type(arrow_type: pa.DataType) -> pa.DataType | None:
    """Return the type of the same strings with 64-bit offsets, None if the type has no 32-bit string offsets."""
    if pa.types.is_string(arrow_type):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(arrow_type) else None


def _count_var_bytes(chunk: pa.Array) -> int:
    data = chunk.buffers()[2]
    return 0 if data is None else int(data.size)
