"""A resolved join: the columns that it compares, and its output columns with their names, types and nullability.

All of these follow `DataFrame.join`. Problems are collected, not raised, so that a caller sees all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkext.joins.columns import JoinInputs, OutputField, as_nullable, check_names
from sparkext.joins.join_condition import NULL_SAFE, JoinCondition
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.pipeline.spec import MOST_COMPARED, ColumnRef, JoinSpec, KeyPair, RangePair
from sparkext.rows.types import spark_key_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


@dataclass(frozen=True)
class ResolvedJoin:
    """A join, ready to be appended to a pipeline.

    `published` are the positions of the build columns that are sent to the workers; `spec` refers to a build column by
    its index in `published`. `key_types` and `build_key_fields` have the common type and the build column of each
    equality.
    """

    spec: JoinSpec
    published: tuple[int, ...]
    outputs: tuple[OutputField, ...]
    key_types: tuple[KeyType, ...]
    build_key_fields: tuple[StructField, ...]


def resolve_join(inputs: JoinInputs, condition: JoinCondition, kind: str, problems: list[str]) -> ResolvedJoin | None:
    """Resolve names and types; return None if `problems` got longer."""
    before = len(problems)
    left, right = inputs.left, inputs.right
    pairs = [(*inputs.resolve(pair.left, pair.right, problems), pair.null_safe) for pair in condition.pairs]
    ends = [(*inputs.resolve(end.left, end.right, problems), end.op) for end in condition.ranges]
    equalities = [(a, b, safe) for a, b, safe in pairs if a is not None and b is not None]
    comparisons = [(a, b, op) for a, b, op in ends if a is not None and b is not None]
    key_types = [inputs.find_type(a, b, problems) for a, b, _ in equalities]
    end_types = [inputs.find_type(a, b, problems) for a, b, _ in comparisons]
    if len(equalities) < len(pairs) or len(comparisons) < len(ends):
        return None
    _check_compared(
        [(right[b].name, key_type) for (_, b, _), key_type in zip(comparisons, end_types, strict=True)], problems
    )
    published = _choose_published(kind, [b for _, b, _ in [*equalities, *comparisons]], len(right))
    positions = {column: number for number, column in enumerate(published)}
    # Output names depend on `on` alone, so collisions are reported even if a type is wrong.
    types = [key_type or KeyType("binary") for key_type in key_types]
    outputs = _lay_out_columns(inputs, equalities, types, condition.using, kind, positions)
    check_names(outputs, inputs.case_sensitive, problems)
    if len(problems) > before:
        return None
    keys = tuple(
        KeyPair(left[a].ref, positions[b], str(key_type), safe)
        for (a, b, safe), key_type in zip(equalities, types, strict=True)
    )
    ranges = tuple(
        RangePair(left[a].ref, op, positions[b], str(end_type))
        for (a, b, op), end_type in zip(comparisons, end_types, strict=True)
    )
    spec = JoinSpec(kind, keys, inputs.algorithm, _write_label(condition, kind), ranges=ranges)
    return ResolvedJoin(spec, published, tuple(outputs), tuple(types), tuple(right[b] for _, b, _ in equalities))


def _check_compared(columns: Sequence[tuple[str, KeyType | None]], problems: list[str]) -> None:
    distinct = dict.fromkeys(columns)
    if len(distinct) > MOST_COMPARED:
        problems.append(
            f"on compares {len(distinct)} columns of the right side"
            f" ({', '.join(f'{name!r} as {key_type}' for name, key_type in distinct)}), but an index supports at most"
            f" {MOST_COMPARED}. Filter the result of an inner join by the other columns, or use Column conditions,"
            " which need the session extension"
        )


def _choose_published(kind: str, keys: Sequence[int], width: int) -> tuple[int, ...]:
    """Return the build columns that workers need: compared columns only for semi and anti joins, otherwise all."""
    if kind in ("semi", "anti"):
        return tuple(dict.fromkeys(keys))
    return tuple(range(width))


def _lay_out_columns(
    inputs: JoinInputs,
    pairs: Sequence[tuple[int, int, bool]],
    key_types: Sequence[KeyType],
    using: bool,
    kind: str,
    positions: dict[int, int],
) -> list[OutputField]:
    """Lay out the result as Spark does: USING keys first, then the left columns, then the right columns."""
    left, right, source = inputs.left, inputs.right, inputs.source
    left_keys = [a for a, _, _ in pairs] if using else []
    right_keys = [b for _, b, _ in pairs] if using else []
    left_outer = kind in ("right", "full")
    right_outer = kind in ("left", "full")
    rest_left = [as_nullable(out, left_outer) for i, out in enumerate(left) if i not in left_keys]
    if kind in ("semi", "anti"):
        return [*(left[a] for a in left_keys), *rest_left]
    rest_right = [
        as_nullable(OutputField(field, ColumnRef(source, positions[i])), right_outer)
        for i, field in enumerate(right)
        if i not in right_keys
    ]
    keys = []
    for a, b, key_type in zip(left_keys, right_keys, key_types, strict=True) if using else ():
        right_key = OutputField(right[b], ColumnRef(source, positions[b]))
        keys.append({"right": right_key, "full": _coalesce_keys(left[a], right_key, key_type)}.get(kind, left[a]))
    return [*keys, *rest_left, *rest_right]


def _coalesce_keys(left: OutputField, right: OutputField, common: KeyType) -> OutputField:
    """Return the key column of a full outer join, Spark's `coalesce(left key, right key)`."""
    from pyspark.sql.types import DecimalType, DoubleType, StructField

    fields = (left.field, right.field)
    data_type = next((field.dataType for field in fields if spark_key_type(field) == common), None)
    if data_type is None:  # neither side has the type in which both are compared
        decimal = common.name == "decimal"
        data_type = DecimalType(common.precision, common.scale) if decimal else DoubleType()
    ref = replace(left.ref, otherwise=right.ref, type=str(common))
    return OutputField(StructField(left.field.name, data_type, True), ref)


def _write_label(condition: JoinCondition, kind: str) -> str:
    if not condition.names:
        return "cross"
    terms = [
        pair.left if condition.using else f"{pair.left} {NULL_SAFE if pair.null_safe else '='} {pair.right}"
        for pair in condition.pairs
    ]
    terms += [f"{end.left} {end.op} {end.right}" for end in condition.ranges]
    return f"{kind} on {', '.join(terms)}"
