"""Conversion of columns from a file to the Arrow types that the query expects."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sparkext.errors import SchemaMismatchError
from sparkext.kernels.columns.gather import MAX_VAR_BYTES
from sparkext.parquet.opened_file import wrap_read_errors
from sparkext.rows.contiguous import widen_type
from sparkext.rows.morsels import MAX_MORSEL_BYTES, split_by_bytes


def decode_in_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into pieces of at most a morsel's bytes, decoding columns that a file declares as dictionaries.

    Dictionary indexes do not reveal the sizes of their strings. Hence only as many rows are decoded at once as would
    fit if all had the longest string.
    """
    widest = sum(_measure_longest(column.dictionary) for column in batch.columns if pa.types.is_dictionary(column.type))
    most = max(1, MAX_MORSEL_BYTES // widest) if widest else max(1, batch.num_rows)
    for start in range(0, batch.num_rows, most):
        piece = batch.slice(start, most)
        if widest:
            columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in piece.columns]
            piece = pa.RecordBatch.from_arrays(columns, names=piece.schema.names)
        yield from split_by_bytes(piece, MAX_MORSEL_BYTES)


def _measure_longest(values: pa.Array) -> int:
    """Return the bytes of the longest of some strings, or the common size of values of other types."""
    try:
        return int(pc.max(pc.binary_length(values)).as_py() or 1)
    except pa.ArrowNotImplementedError:
        return max(1, int(values.nbytes) // max(len(values), 1))


def convert_to_declared(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return a file's values in the Arrow type of the Spark type that the query expects.

    The planner, or `rules.find_read_problem`, has verified that the values are the same; their representation may
    differ (dictionaries, units). Strings beyond the range of 32-bit offsets keep 64-bit offsets: `RowSet` copies them
    in parts.

    Raises
    ------
    SchemaMismatchError
        The values are of another type, probably because the file has been replaced since planning.
    FileReadError
        A value is out of the type's range.
    """
    if array.type == target:
        return array
    try:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if pa.types.is_dictionary(array.type):
            array = _decode_dictionary(array)
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(target):
            # Only the unit changes: with and without a time zone, values count from the epoch.
            with wrap_read_errors(path):  # raises for values out of the range of microseconds
                return array.cast(pa.timestamp("us", tz=array.type.tz)).view(target)
        if _is_respelled(array.type, target):
            return array.cast(target if array.nbytes <= MAX_VAR_BYTES else widen_type(target) or target)
        problem = "the types differ"
    except (pa.ArrowException, TypeError) as error:
        problem = str(error)
    raise SchemaMismatchError(
        f"{path} contains {array.type}, but the query was planned for {target}: check whether the file was replaced"
        f" ({problem})"
    )


def _decode_dictionary(array: pa.DictionaryArray) -> pa.Array:
    try:
        return array.dictionary_decode()
    except pa.ArrowInvalid:  # more bytes than 32-bit offsets can address
        wide_type = widen_type(array.dictionary.type)
        if wide_type is None:
            raise
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(wide_type)).dictionary_decode()


def _is_respelled(stored: pa.DataType, target: pa.DataType) -> bool:
    """Return whether two types have the same values. Arrow would also cast strings to numbers, and numbers to dates."""
    if stored == target:
        return True
    if pa.types.is_signed_integer(target):
        # Spark has numbers for Arrow's durations, and may request wider integers than are stored.
        if pa.types.is_duration(stored):
            return bool(target == pa.int64())
        return bool(pa.types.is_signed_integer(stored) and stored.bit_width <= target.bit_width)
    if pa.types.is_decimal(target) and pa.types.is_decimal(stored):
        return bool(stored.precision == target.precision and stored.scale == target.scale)
    return any(stored in spellings and target in spellings for spellings in _SPELLINGS)


_SPELLINGS = (
    (pa.string(), pa.large_string(), pa.string_view()),
    (pa.binary(), pa.large_binary(), pa.binary_view()),
    (pa.date32(), pa.date64()),
)
