"""Evaluates expressions over rows of a pipeline, column by column, with the same results as Spark, row by row.

Nothing is compiled for an expression: it is evaluated by functions of Arrow and numpy, and by existing kernels. Every
part is computed for all rows, and a mask records where it has failed. Failures count only in rows in which Spark would
have evaluated the part (see `expressions.vectors`). `plans.expressions.evaluators.ARROW` lists the operators.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.expressions import decimal_vectors, vector_arithmetic, vector_rounding
from sparkext.expressions.letter_cases import change_case
from sparkext.expressions.text_functions import concatenate_texts, extract_substrings, length, match_text, trim_text
from sparkext.expressions.vector_choices import both_hold, branch, coalesce_vectors, one_holds
from sparkext.expressions.vector_comparisons import check_membership, choose_extreme, compare_vectors
from sparkext.expressions.vector_dates import compute_date, compute_date_field
from sparkext.expressions.vectors import (
    BoolArray,
    Vector,
    convert_to_arrow,
    make_constant,
    vector_of,
    where_true,
)
from sparkext.kernels.columns.buffers import unpack_validity
from sparkext.kernels.keys.normalised import cast_key
from sparkext.plans.expressions.expression import (
    ARITHMETIC,
    CASES,
    COMPARISONS,
    DATE_FIELDS,
    DATE_FUNCTIONS,
    DECIMAL_ARITHMETIC,
    ROUNDINGS,
    STRING_TESTS,
    TRIMS,
    Expression,
)
from sparkext.plans.pipeline.spec import ColumnRef
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import arrow_key_type


class ExpressionError(ArithmeticError):
    """The expression with index `expression` of a request fails on row `row` of the set."""

    def __init__(self, expression: int, row: int) -> None:
        super().__init__(f"expression {expression} fails on row {row}")
        self.expression, self.row = expression, row


def holds(condition: Expression, rows: RowSet) -> BoolArray:
    """Return bool[rows.length]: whether the condition is true. Null counts as false, as in every join condition.

    Raises
    ------
    ExpressionError
        The condition fails on a row.
    """
    evaluation = _Evaluation(rows, [condition])
    computed = evaluation.vectors()
    result = where_true(computed[0] if computed else evaluation.vector(condition))
    return result if result.ndim else np.full(rows.length, result)


def values(node: Expression, rows: RowSet) -> pa.Array:
    """Return the values of an expression for these rows: see `columns`."""
    (column,) = columns([node], rows)
    return column


def columns(nodes: Sequence[Expression], rows: RowSet) -> list[pa.Array]:
    """Return the values of expressions for these rows, in their Arrow types. Common subexpressions are computed once.

    Strings have offsets of the same width as their source columns; columns of a morsel may be large strings.

    Raises
    ------
    ExpressionError
        An expression fails on a row.
    VarBytesOverflowError
        The strings of a column exceed the capacity of one batch.
    """
    evaluation = _Evaluation(rows, nodes)
    computed = evaluation.vectors()
    return [
        evaluation.column(node)
        if number not in computed
        else convert_to_arrow(computed[number], _require_type(node), rows.length)
        for number, node in enumerate(nodes)
    ]


def _require_type(node: Expression) -> Any:
    assert node.type is not None, "only a null test asks for no type"
    return node.type


class _Evaluation:
    """One evaluation of expressions over one set of rows."""

    def __init__(self, rows: RowSet, nodes: Sequence[Expression]) -> None:
        self._rows, self._nodes = rows, nodes
        times = Counter(part for node in nodes for part in node.parts())
        self._shared = {part for part, count in times.items() if count > 1}
        self._computed_vectors: dict[Expression, Vector] = {}
        self._gathered: dict[ColumnRef, pa.Array] = {}

    def vectors(self) -> dict[int, Vector]:
        """Compute all expressions except columns, by index.

        Raises `ExpressionError` for the first expression that fails, at the first row on which it fails.
        """
        with np.errstate(all="ignore"):
            vectors = {number: self.vector(node) for number, node in enumerate(self._nodes) if node.op != "column"}
        for number, vector in vectors.items():
            if vector.failed is not None and self._rows.length and vector.failed.any():
                raise ExpressionError(number, int(np.argmax(vector.failed)))
        return vectors

    def vector(self, node: Expression) -> Vector:
        """Compute a node, or return the vector that was computed for it before."""
        if node not in self._shared:
            return self._compute(node)
        if node not in self._computed_vectors:
            self._computed_vectors[node] = self._compute(node)
        return self._computed_vectors[node]

    def column(self, node: Expression) -> pa.Array:
        """Return a column in the type in which it is emitted."""
        return cast_key(self._gather(node), arrow_key_type(_require_type(node)))

    def _gather(self, node: Expression) -> pa.Array:
        reference = ColumnRef(node.source, node.column)
        if reference not in self._gathered:
            self._gathered[reference] = self._rows.gather(reference)
        return self._gathered[reference]

    def _compute(self, node: Expression) -> Vector:
        if node.op == "column":
            return vector_of(self.column(node), _require_type(node))
        if node.op == "literal":
            return make_constant(node.text, _require_type(node))
        if node.op == "is_null":
            return self._is_null(node.args[0])
        if node.op in ("and", "or"):
            return self._connect(node)
        args = (self.vector(argument) for argument in node.args)
        if node.op == "if":
            return branch(*args)
        if node.op == "coalesce":
            return coalesce_vectors(args)
        if node.op == "not":
            (operand,) = args
            return Vector(np.asarray(~operand.data), operand.known, operand.failed)
        if node.op in ("least", "greatest"):
            return choose_extreme(node.op, [*args])
        if node.op in COMPARISONS:
            return compare_vectors(node.op, *args)
        if node.op == "in":
            return check_membership(node, *args)
        if node.op in STRING_TESTS:
            return match_text(node, next(args))
        if node.op in DATE_FIELDS:
            return compute_date_field(node, next(args))
        if node.op in DATE_FUNCTIONS:
            return compute_date(node, [*args])
        if node.op in TRIMS:
            return trim_text(node, next(args))
        if node.op == "substring":
            return extract_substrings(node, next(args))
        if node.op in CASES:
            return change_case(node, next(args))
        if node.op == "length":
            return length(next(args))
        if node.op == "concat":
            return concatenate_texts([*args])
        return _evaluate_number(node, [*args])

    def _is_null(self, tested: Expression) -> Vector:
        if tested.op == "column":
            # The column may have any type.
            valid = unpack_validity(self._gather(tested))
            return Vector(np.zeros((), np.bool_) if valid is None else ~valid.view(np.bool_))
        vector = self.vector(tested)
        return Vector(np.zeros((), np.bool_) if vector.known is None else ~vector.known, None, vector.failed)

    def _connect(self, node: Expression) -> Vector:
        """AND and OR: each operand counts in the rows that the operands before it have not decided."""
        result = self.vector(node.args[0])
        for argument in node.args[1:]:
            result = (both_hold if node.op == "and" else one_holds)(result, self.vector(argument))
        return result


def _evaluate_number(node: Expression, args: list[Vector]) -> Vector:
    is_decimal = _require_type(node).name == "decimal"
    if node.op == "to_decimal":
        return decimal_vectors.to_decimal(node, *args)
    if node.op == "unscaled":
        return decimal_vectors.extract_digits(*args)
    if node.op == "over":
        return decimal_vectors.divide_decimals(node, *args)
    if is_decimal and (node.op in ("remainder", "pmod")):
        return decimal_vectors.compute_decimal_remainder(node, *args)
    if is_decimal and node.op in (*ROUNDINGS, "floor", "ceil"):
        return decimal_vectors.round_decimals(node, args[0])
    if node.op in DECIMAL_ARITHMETIC or (node.op in ARITHMETIC and is_decimal):
        return decimal_vectors.combine_decimals(node, *args)
    if node.op in ("/", "%"):
        return vector_arithmetic.divide_numbers(node, *args)
    if node.op in ARITHMETIC:
        return vector_arithmetic.compute_arithmetic(node, *args)
    if node.op in ("negate", "abs"):
        if is_decimal:
            return decimal_vectors.change_decimal_sign(node.op, *args)
        return vector_arithmetic.change_sign(node, *args)
    return _OF_NUMBERS[node.op](node, *args)


_OF_NUMBERS: dict[str, Callable[..., Vector]] = {
    "cast": vector_arithmetic.cast,
    "sqrt": vector_arithmetic.compute_square_root,
    "div": vector_arithmetic.divide_integers,
    "pmod": vector_arithmetic.compute_positive_remainder,
    "is_nan": vector_arithmetic.is_nan,
    "nan_or": vector_arithmetic.replace_nans,
    **dict.fromkeys(ROUNDINGS, lambda node, operand, _: vector_rounding.round_integers(node, operand)),
    **dict.fromkeys(("floor", "ceil"), vector_rounding.round_to_longs),
    "to_integer": vector_rounding.to_integer,
}


def serialise_failing_values(node: Expression, rows: RowSet, row: int) -> str:
    """Return `read_failing_values` as JSON, for the message in which a `ConditionError` reports them to the JVM."""
    return json.dumps(read_failing_values(node, rows, row))


def read_failing_values(node: Expression, rows: RowSet, row: int) -> dict[str, int | str | bool]:
    """Return the values that an expression reads in a row; the extension derives Spark's error from them.

    Keys are "source.column". Integers are numbers, floats their bits, decimals their unscaled digits, strings the
    hexadecimal digits of their bytes; columns that only a null test reads are true. Nulls are omitted. See
    `PairCondition`.
    """
    failing_row = rows.slice(row, 1)
    read: dict[str, int | str | bool] = {}
    for column in dict.fromkeys(node.columns()):
        array = failing_row.gather(ColumnRef(column.source, column.column))
        name = f"{column.source}.{column.column}"
        if array.null_count:
            continue
        if column.type is None:
            read.setdefault(name, True)
            continue
        data = vector_of(cast_key(array, arrow_key_type(column.type)), column.type).data
        if isinstance(data, pa.Array):
            read[name] = data[0].as_py().hex()
        else:
            read[name] = int(data.view(f"i{data.itemsize}")[0] if data.dtype.kind == "f" else data[0])
    return read


def repeat_literal(text: str | None, target: pa.DataType, length: int) -> pa.Array:
    """Return a literal as a column of `length` equal values."""
    return (
        pa.array([text], pa.string())
        .cast(_choose_parsed_type(target))
        .cast(target)
        .take(pa.array(np.zeros(length, np.int32)))
    )


def _choose_parsed_type(target: pa.DataType) -> pa.DataType:
    """Return the type in which a literal of `target` is written: dates and times are numbers of their unit."""
    if pa.types.is_date(target):
        return pa.int32()
    if pa.types.is_timestamp(target) or pa.types.is_time(target) or pa.types.is_duration(target):
        return pa.int64()
    return target
