"""Choice of the accumulator for an aggregate function and a type of values."""

from __future__ import annotations

import pyarrow as pa

from sparkext.kernels.columns.buffers import is_var
from sparkext.kernels.groups.accumulate_choices import ChoiceAccumulator
from sparkext.kernels.groups.accumulate_decimals import DecimalSums
from sparkext.kernels.groups.accumulate_extremes import LongDecimalExtremeAccumulator, WordAccumulator
from sparkext.kernels.groups.accumulate_moments import MomentsAccumulator
from sparkext.kernels.groups.accumulate_numbers import AccumulatorOverflowError, DoubleSums, IntegerSums
from sparkext.kernels.groups.accumulate_sums import (
    AverageAccumulator,
    CountAccumulator,
    DecimalSumAccumulator,
    SumAccumulator,
)
from sparkext.kernels.groups.accumulate_texts import TextExtremeAccumulator
from sparkext.kernels.groups.accumulator import Accumulator
from sparkext.kernels.keys.normalised import word_bits

__all__ = ["FUNCTIONS", "Accumulator", "AccumulatorOverflowError", "accumulator"]

_MOMENTS = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
_BITS = ("bit_and", "bit_or", "bit_xor")
FUNCTIONS = ("count", "sum", "avg", "min", "max", "first", "last", *_MOMENTS, *_BITS)


def accumulator(
    function: str, value_type: pa.DataType | None = None, *, checked: bool = False, ignore_nulls: bool = False
) -> Accumulator:
    """Return an empty accumulator.

    Parameters
    ----------
    function
        One of `FUNCTIONS`.
    value_type
        The type of the values; None for count(*). For a decimal of up to 18 digits, sum and avg also accept unscaled
        int64 values.
    checked
        Whether a sum of integers that overflows int64 raises `AccumulatorOverflowError` (ANSI) instead of wrapping.
    ignore_nulls
        Whether first and last skip nulls.

    Raises
    ------
    TypeError
        The function does not accept values of this type.
    """
    if function == "count":
        return CountAccumulator(value_type)
    if value_type is not None:
        if function in ("first", "last"):
            return ChoiceAccumulator(function, value_type, ignore_nulls)
        if function in ("min", "max"):
            return _create_extreme(function, value_type)
        is_integer, is_decimal = pa.types.is_signed_integer(value_type), pa.types.is_decimal128(value_type)
        is_number = is_integer or pa.types.is_float32(value_type) or pa.types.is_float64(value_type)
        if function == "sum" and is_decimal:
            return DecimalSumAccumulator(value_type, DecimalSums(value_type))
        if function == "sum" and is_integer:
            return SumAccumulator(value_type, IntegerSums(checked))
        if function == "sum" and is_number:
            return SumAccumulator(value_type, DoubleSums())
        if function == "avg" and is_decimal:
            return AverageAccumulator(value_type, DecimalSums(value_type))
        if function == "avg" and is_number:
            return AverageAccumulator(value_type, DoubleSums())
        if function in _MOMENTS and is_number:
            return MomentsAccumulator(value_type)
        if function in _BITS and is_integer:
            return WordAccumulator(function, value_type)
    raise TypeError(f"no accumulator for {function} of {value_type}; functions are {', '.join(FUNCTIONS)}")


def _create_extreme(function: str, value_type: pa.DataType) -> Accumulator:
    if is_var(value_type):
        return TextExtremeAccumulator(function, value_type)
    if word_bits(value_type) is not None:
        return WordAccumulator(function, value_type)
    if pa.types.is_decimal128(value_type):
        return LongDecimalExtremeAccumulator(function, value_type)
    raise TypeError(f"no accumulator for {function} of {value_type}: its values have no order here")
