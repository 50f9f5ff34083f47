"""Evaluates a predicate over rows of a pipeline, with Spark's three-valued logic, through Arrow's compute functions.

Covered are the types whose values Arrow compares as Spark does: integers, dates, timestamps, decimals of one scale,
strings and binaries byte by byte, booleans for equality.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.keys import cast_key
from sparkext.plans.key_types import parse_key_type
from sparkext.plans.predicate import Operand, Predicate
from sparkext.plans.spec import ColumnRef
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import arrow_key_type

_STRING_TESTS: dict[str, Callable[..., pa.Array]] = {
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "contains": pc.match_substring,
    "like": pc.match_like,
}

_COMPARE: dict[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def holds(predicate: Predicate, rows: RowSet) -> npt.NDArray[np.bool_]:
    """Return bool[rows.length]: where the predicate is true. Null counts as false, as in every join condition."""
    result = _evaluate(predicate, rows)
    mask: npt.NDArray[np.bool_] = result.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _evaluate(predicate: Predicate, rows: RowSet) -> pa.Array:
    if predicate.op in ("and", "or"):
        combine = pc.and_kleene if predicate.op == "and" else pc.or_kleene
        result = _evaluate(predicate.children[0], rows)
        for child in predicate.children[1:]:
            result = combine(result, _evaluate(child, rows))
        return result
    if predicate.op == "not":
        return pc.invert(_evaluate(predicate.children[0], rows))
    if predicate.op == "is_null":
        return pc.is_null(_column(predicate.operands[0], rows))
    if predicate.op in _STRING_TESTS:
        column, pattern = predicate.operands
        # Byte by byte, as Spark does: as text, Arrow would look for characters, which not all bytes are.
        array = _column(column, rows).cast(pa.binary())
        return _STRING_TESTS[predicate.op](array, pattern=pattern.text)
    target = arrow_key_type(parse_key_type(predicate.type or ""))
    if predicate.op == "in":
        array = cast_key(_column(predicate.operands[0], rows), target)
        among = pc.is_in(array, value_set=_list(predicate.texts, target))
        return pc.if_else(pc.is_valid(array), among, pa.scalar(None, pa.bool_()))
    left, right = (_values(operand, rows, target) for operand in predicate.operands)
    if predicate.op == "<=>":
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(both_null, pc.equal(left, right).fill_null(False))
    return _COMPARE[predicate.op](left, right)


def _column(operand: Operand, rows: RowSet) -> pa.Array:
    assert operand.source is not None, "the planner folds tests of literals"
    return rows.gather(ColumnRef(operand.source, operand.column))


def _values(operand: Operand, rows: RowSet, target: pa.DataType) -> pa.Array:
    if operand.source is not None:
        return cast_key(_column(operand, rows), target)
    return literal_array(operand.text, target, rows.length)


def literal_array(text: str | None, target: pa.DataType, length: int) -> pa.Array:
    """Return a literal as a column: comparing with an Arrow scalar is no faster, and not all types have one."""
    return _literal(text, target).take(pa.array(_zeros(length)))


def _literal(text: str | None, target: pa.DataType) -> pa.Array:
    return _literals([text], target)


@lru_cache(maxsize=16)
def _list(texts: tuple[str, ...], target: pa.DataType) -> pa.Array:
    """Return the literals of a list, which every morsel is tested against."""
    return _literals(texts, target)


def _literals(texts: Sequence[str | None], target: pa.DataType) -> pa.Array:
    return pa.array(texts, pa.string()).cast(_parsed(target)).cast(target)


def _parsed(target: pa.DataType) -> pa.DataType:
    """Return the type in which a literal of `target` is written: numbers of their unit where that is not plain text."""
    if pa.types.is_date(target):
        return pa.int32()
    if pa.types.is_timestamp(target) or pa.types.is_time(target) or pa.types.is_duration(target):
        return pa.int64()
    return target


def _zeros(length: int) -> npt.NDArray[np.int32]:
    return np.zeros(length, dtype=np.int32)
