"""Evaluates a condition over rows of a pipeline, with Spark's three-valued logic, through Arrow's compute functions.

It covers what `plans.evaluators.ARROW` names: types whose values Arrow compares as Spark does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.keys import cast_key
from sparkext.plans.expression import Expression
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


def holds(condition: Expression, rows: RowSet) -> npt.NDArray[np.bool_]:
    """Return bool[rows.length]: where the condition is true. Null counts as false, as in every join condition."""
    result = _values(condition, rows)
    mask: npt.NDArray[np.bool_] = result.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _values(node: Expression, rows: RowSet) -> pa.Array:
    if node.op == "column":
        return cast_key(_column(node, rows), _arrow_type(node))
    if node.op == "literal":
        return literal_array(node.text, _arrow_type(node), rows.length)
    if node.op == "is_null":
        (tested,) = node.args
        return pc.is_null(_uncast(tested, rows))
    if node.op in _STRING_TESTS:
        return _string_test(node, rows)
    args = (_values(argument, rows) for argument in node.args)
    if node.op in ("and", "or"):
        # One after the other: a wide one would keep a column for each of its parts.
        return reduce(pc.and_kleene if node.op == "and" else pc.or_kleene, args)
    if node.op == "not":
        return pc.invert(*args)
    if node.op == "in":
        return _listed(next(args), node)
    if node.op == "<=>":
        return _null_safe_equal(*args)
    return _COMPARE[node.op](*args)


def _column(node: Expression, rows: RowSet) -> pa.Array:
    return rows.gather(ColumnRef(node.source, node.column))


def _uncast(node: Expression, rows: RowSet) -> pa.Array:
    """Return values; those of a column in the type that it has."""
    return _column(node, rows) if node.op == "column" else _values(node, rows)


def _arrow_type(node: Expression) -> pa.DataType:
    assert node.type is not None, "only a null test asks for no type"
    return arrow_key_type(node.type)


def _string_test(node: Expression, rows: RowSet) -> pa.Array:
    tested, pattern = node.args
    # Byte by byte, as Spark does: as text, Arrow would look for characters, which not all bytes are.
    return _STRING_TESTS[node.op](_uncast(tested, rows).cast(pa.binary()), pattern=pattern.text)


def _listed(array: pa.Array, node: Expression) -> pa.Array:
    """IN: true if the value is found, null if it is not and there is a null in the list."""
    known, has_null = _list(node.texts, array.type)
    among = pc.is_in(array, value_set=known)
    return pc.if_else(among if has_null else pc.is_valid(array), among, pa.scalar(None, pa.bool_()))


def _null_safe_equal(one: pa.Array, other: pa.Array) -> pa.Array:
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(both_null, pc.equal(one, other).fill_null(False))


def literal_array(text: str | None, target: pa.DataType, length: int) -> pa.Array:
    """Return a literal as a column: comparing with an Arrow scalar is no faster, and not all types have one."""
    return _literal(text, target).take(pa.array(_zeros(length)))


def _literal(text: str | None, target: pa.DataType) -> pa.Array:
    return _literals([text], target)


@lru_cache(maxsize=16)
def _list(texts: tuple[str | None, ...], target: pa.DataType) -> tuple[pa.Array, bool]:
    """Return the literals of a list but for null, which every morsel is tested against, and whether there is a null."""
    known = [text for text in texts if text is not None]
    return _literals(known, target), len(known) < len(texts)


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
