"""What a file holds, in the Arrow types that the query takes it for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sparkext.errors import SchemaMismatchError
from sparkext.kernels.gather import MAX_VAR_BYTES
from sparkext.parquet.opened_file import reading
from sparkext.rows.contiguous import wide_type
from sparkext.rows.morsels import MAX_MORSEL_BYTES, within_bytes


def decoded_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
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

    Raises
    ------
    SchemaMismatchError
        They are not, as the file has been replaced since.
    FileReadError
        A value is out of the type's range.
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
            with reading(path):  # values that microseconds do not reach
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
