"""Conversion of values of a fixed width to words of the same order, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, view_values
from sparkext.kernels.columns.growing import bool_array, decimal_array, fixed_array
from sparkext.kernels.keys.normalised import column_words
from sparkext.kernels.runtime.jit import AnyArray, freeze, kernel

_NAN_WORD = np.int64(0x7FF8000000000000)
_BELOW_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)


def ordered_words(column: pa.Array) -> Int64Array:
    """Return order-preserving words like `column_words`, int64[n], except that -0.0 is distinct, just below 0.0."""
    if not pa.types.is_floating(column.type):
        return column_words(column)
    doubles = view_values(column.cast(pa.float64()), np.float64)
    words = np.empty(doubles.size, dtype=np.int64)
    _words_of_doubles(doubles, words)
    return freeze(words)


def words_array(words: Int64Array, arrow_type: pa.DataType, mask: UInt8Array | None) -> pa.Array:
    """Return the values of words from `column_words` or `ordered_words`, null if `mask` is zero."""
    if pa.types.is_boolean(arrow_type):
        return bool_array(words.astype(np.uint8), mask)
    if pa.types.is_floating(arrow_type):
        doubles = np.empty(words.size, dtype=np.float64)
        _doubles_of_words(freeze(words), doubles)
        return fixed_array(doubles.astype(f"f{arrow_type.bit_width // 8}"), arrow_type, mask)
    if pa.types.is_decimal(arrow_type):
        return decimal_array(words, words >> 63, arrow_type, mask)
    return fixed_array(words.astype(f"i{arrow_type.bit_width // 8}"), arrow_type, mask)


@kernel
def _words_of_doubles(doubles: AnyArray, out: Int64Array) -> None:
    """out[i] = double i as a signed integer of the same order; all NaN are one word, above all other words."""
    bits = doubles.view(np.int64)
    for i in range(doubles.size):
        b = bits[i]
        word = b ^ ((b >> 63) & _BELOW_SIGN)
        out[i] = word if doubles[i] == doubles[i] else _NAN_WORD


@kernel
def _doubles_of_words(words: Int64Array, out: AnyArray) -> None:
    bits = out.view(np.int64)
    for i in range(words.size):
        w = words[i]
        bits[i] = w ^ ((w >> 63) & _BELOW_SIGN)
