"""The shape of a join: which columns it compares, and which it emits under which names, types and nullability.

All of it follows `DataFrame.join`. Problems are collected, not raised, so that a caller sees all of them at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkext.plans.key_types import KeyType, common_key_type
from sparkext.plans.spec import (
    BUILD_PRESERVING,
    MOST_COMPARED,
    RANGE_OPERATORS,
    ColumnRef,
    JoinSpec,
    KeyPair,
    RangePair,
)
from sparkext.rows.types import spark_key_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

NULL_SAFE = "<=>"
_EQUAL = ("=", "==")


@dataclass(frozen=True)
class NamedPair:
    """One equality as the caller named it."""

    left: str
    right: str
    null_safe: bool


@dataclass(frozen=True)
class NamedRange:
    """One comparison as the caller named it: `left op right`."""

    left: str
    op: str
    right: str


@dataclass(frozen=True)
class JoinCondition:
    """What `on` means. With `using`, each pair gives one output column, as in `DataFrame.join(other, "key")`."""

    pairs: tuple[NamedPair, ...]
    using: bool
    ranges: tuple[NamedRange, ...] = ()

    @property
    def names(self) -> list[tuple[str, str]]:
        """The left and the right column of every pair and every range."""
        return [(pair.left, pair.right) for pair in self.pairs] + [(end.left, end.right) for end in self.ranges]


@dataclass(frozen=True)
class OutputField:
    """A column of the pipeline's result so far: its declaration, and where its values come from."""

    field: StructField
    ref: ColumnRef


@dataclass(frozen=True)
class JoinShape:
    """A join, ready to be appended to a pipeline.

    `published` are the positions of the build columns that travel to the workers, in order; `spec` refers to them by
    their place in that list. `key_types` are the common types and `build_key_fields` the build columns, by pair.
    """

    spec: JoinSpec
    published: tuple[int, ...]
    outputs: tuple[OutputField, ...]
    key_types: tuple[KeyType, ...]
    build_key_fields: tuple[StructField, ...]


def read_condition(on: Any, kind: str | None, how: object, problems: list[str]) -> JoinCondition:
    """Understand `on`: a name, a list of names, or a list of (left, right) or (left, operator, right)."""
    nothing = JoinCondition((), using=False)
    if on is None:
        if str(how).lower() != "cross":
            problems.append("on is missing: name the key columns (only how='cross' joins without any)")
        return nothing
    items = [on] if isinstance(on, str) else on
    if not isinstance(items, (list, tuple)):
        problems.append(_wrong_on(on))
        return nothing
    if not items:
        problems.append("on is empty: name at least one key column, or use how='cross' without on")
        return nothing
    if all(isinstance(item, str) for item in items):
        return JoinCondition(tuple(NamedPair(item, item, null_safe=False) for item in items), using=True)
    read = [_read_item(item) for item in items]
    problems.extend(_wrong_on(item) for item, part in zip(items, read, strict=True) if part is None)
    pairs = tuple(part for part in read if isinstance(part, NamedPair))
    ranges = tuple(part for part in read if isinstance(part, NamedRange))
    if ranges and not pairs and kind in BUILD_PRESERVING:
        problems.append(f"a {kind} join on comparisons needs an equality as well: name one, or exchange the two sides")
    return JoinCondition(pairs, using=False, ranges=ranges)


def _read_item(item: Any) -> NamedPair | NamedRange | None:
    if not isinstance(item, tuple) or not all(isinstance(part, str) for part in item):
        return None
    if len(item) == 2:
        return NamedPair(item[0], item[1], null_safe=False)
    if len(item) != 3:
        return None
    left, op, right = item
    if op in RANGE_OPERATORS:
        return NamedRange(left, op, right)
    return NamedPair(left, right, null_safe=op == NULL_SAFE) if op == NULL_SAFE or op in _EQUAL else None


def _wrong_on(item: Any) -> str:
    if type(item).__name__ == "Column":
        return (
            f"on holds the Column {item}: conditions on Columns need the session extension (sparkext.configure); here"
            " name the columns instead, as in on=[('left_name', 'right_name')]"
        )
    return (
        f"on holds {item!r}: expected a column name, a list of names, or a list of (left, right) or"
        " (left, operator, right) tuples of names, where the operator is one of =, <=>, <, <=, >, >="
    )


def shape_join(
    left: Sequence[OutputField],
    right: Sequence[StructField],
    condition: JoinCondition,
    kind: str,
    source: int,
    algorithm: str,
    case_sensitive: bool,
    problems: list[str],
) -> JoinShape | None:
    """Resolve names and types; return None if `problems` got longer.

    `source` is the number that the build side will have in the pipeline.
    """
    before = len(problems)
    left_fields = [output.field for output in left]
    pairs = [
        (
            resolve_column(pair.left, left_fields, "left", case_sensitive, problems),
            resolve_column(pair.right, right, "right", case_sensitive, problems),
            pair.null_safe,
        )
        for pair in condition.pairs
    ]
    ends = [
        (
            resolve_column(end.left, left_fields, "left", case_sensitive, problems),
            end.op,
            resolve_column(end.right, right, "right", case_sensitive, problems),
        )
        for end in condition.ranges
    ]
    resolved = [(a, b, safe) for a, b, safe in pairs if a is not None and b is not None]
    compared = [(a, op, b) for a, op, b in ends if a is not None and b is not None]
    key_types = [common_type(left_fields[a], right[b], problems) for a, b, _ in resolved]
    end_types = [common_type(left_fields[a], right[b], problems) for a, _, b in compared]
    if len(resolved) < len(pairs) or len(compared) < len(ends):
        return None
    _check_compared(
        [(right[b].name, key_type) for (_, _, b), key_type in zip(compared, end_types, strict=True)], problems
    )
    published = _published(kind, [b for _, b, _ in resolved] + [b for _, _, b in compared], len(right))
    place = {column: number for number, column in enumerate(published)}
    # Names follow from `on` alone: a type problem does not hide that they collide.
    types = [key_type or KeyType("binary") for key_type in key_types]
    outputs = _outputs(left, right, resolved, types, condition.using, kind, source, place)
    check_names(outputs, case_sensitive, problems)
    if len(problems) > before:
        return None
    keys = tuple(
        KeyPair(left[a].ref, place[b], str(key_type), safe)
        for (a, b, safe), key_type in zip(resolved, types, strict=True)
    )
    ranges = tuple(
        RangePair(left[a].ref, op, place[b], str(end_type))
        for (a, op, b), end_type in zip(compared, end_types, strict=True)
    )
    spec = JoinSpec(kind, keys, algorithm, _label(condition, kind), ranges=ranges)
    return JoinShape(spec, published, tuple(outputs), tuple(types), tuple(right[b] for _, b, _ in resolved))


def check_left_names(
    left: Sequence[OutputField], condition: JoinCondition, sensitive: bool, problems: list[str]
) -> None:
    """Look up the left columns alone, where there is no right side to go on with."""
    fields = [output.field for output in left]
    for name, _ in condition.names:
        resolve_column(name, fields, "left", sensitive, problems)


def resolve_column(
    name: str, fields: Sequence[StructField], side: str, case_sensitive: bool, problems: list[str]
) -> int | None:
    """Return the position of the one column called `name`."""
    found = [i for i, field in enumerate(fields) if _same(field.name, name, case_sensitive)]
    if len(found) == 1:
        return found[0]
    available = [field.name for field in fields]
    if found:
        problems.append(
            f"{side} column {name!r} is ambiguous: {', '.join(repr(available[i]) for i in found)} all match."
            " Rename or drop all but one"
        )
    else:
        close = difflib.get_close_matches(name, available, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        problems.append(f"{side} column {name!r} does not exist{hint} Available: {', '.join(available) or 'none'}")
    return None


def _same(one: str, other: str, case_sensitive: bool) -> bool:
    return one == other or (not case_sensitive and one.lower() == other.lower())


def common_type(left: StructField, right: StructField, problems: list[str]) -> KeyType | None:
    """Return the type in which two columns are compared."""
    types = []
    for side, field in (("left", left), ("right", right)):
        key_type = spark_key_type(field)
        if key_type is None:
            problems.append(
                f"{side} column {field.name!r} of type {field.dataType.simpleString()} cannot be a join key here:"
                " keys are integers, floats, decimals, booleans, dates, timestamps, binary-collated strings or binary."
                " Join it with Spark's own join"
            )
        types.append(key_type)
    if types[0] is None or types[1] is None:
        return None
    common = common_key_type(types[0], types[1])
    if common is None:
        problems.append(
            f"left column {left.name!r} ({left.dataType.simpleString()}) and right column {right.name!r}"
            f" ({right.dataType.simpleString()}) have no common type that keeps every value: cast one of them"
        )
    return common


def _check_compared(columns: Sequence[tuple[str, KeyType | None]], problems: list[str]) -> None:
    distinct = dict.fromkeys(columns)
    if len(distinct) > MOST_COMPARED:
        problems.append(
            f"on compares {len(distinct)} columns of the right side, each as one type:"
            f" {', '.join(f'{name!r} as {key_type}' for name, key_type in distinct)}. One index answers comparisons"
            f" with {MOST_COMPARED}: filter an inner join's result for the others, or use Column conditions, which need"
            " the session extension"
        )


def _published(kind: str, keys: Sequence[int], width: int) -> tuple[int, ...]:
    """Choose the build columns that workers need: keys to index, and what is emitted."""
    if kind in ("semi", "anti"):
        return tuple(dict.fromkeys(keys))
    return tuple(range(width))


def _outputs(
    left: Sequence[OutputField],
    right: Sequence[StructField],
    pairs: Sequence[tuple[int, int, bool]],
    key_types: Sequence[KeyType],
    using: bool,
    kind: str,
    source: int,
    place: dict[int, int],
) -> list[OutputField]:
    """Lay out the result as Spark does: USING keys first, then the left columns, then the right ones."""
    left_keys = [a for a, _, _ in pairs] if using else []
    right_keys = [b for _, b, _ in pairs] if using else []
    left_outer = kind in ("right", "full")
    right_outer = kind in ("left", "full")
    rest_left = [as_nullable(out, left_outer) for i, out in enumerate(left) if i not in left_keys]
    if kind in ("semi", "anti"):
        return [*(left[a] for a in left_keys), *rest_left]
    rest_right = [
        as_nullable(OutputField(field, ColumnRef(source, place[i])), right_outer)
        for i, field in enumerate(right)
        if i not in right_keys
    ]
    keys = []
    for a, b, key_type in zip(left_keys, right_keys, key_types, strict=True) if using else ():
        right_key = OutputField(right[b], ColumnRef(source, place[b]))
        keys.append({"right": right_key, "full": _either(left[a], right_key, key_type)}.get(kind, left[a]))
    return [*keys, *rest_left, *rest_right]


def as_nullable(output: OutputField, outer: bool) -> OutputField:
    """Return the column as one that may be null, if `outer`."""
    if not outer or output.field.nullable:
        return output
    from pyspark.sql.types import StructField

    field = output.field
    return replace(output, field=StructField(field.name, field.dataType, True, field.metadata))


def _either(left: OutputField, right: OutputField, common: KeyType) -> OutputField:
    """Spark's `coalesce(left key, right key)` of a full outer join."""
    from pyspark.sql.types import DecimalType, DoubleType, StructField

    fields = (left.field, right.field)
    data_type = next((field.dataType for field in fields if spark_key_type(field) == common), None)
    if data_type is None:  # neither side has the type in which both are compared
        decimal = common.name == "decimal"
        data_type = DecimalType(common.precision, common.scale) if decimal else DoubleType()
    ref = replace(left.ref, otherwise=right.ref, type=str(common))
    return OutputField(StructField(left.field.name, data_type, True), ref)


def check_names(outputs: Iterable[OutputField], case_sensitive: bool, problems: list[str]) -> None:
    """Refuse a result with two columns of one name."""
    seen: dict[str, str] = {}
    repeated = []
    for output in outputs:
        name = output.field.name
        folded = name if case_sensitive else name.lower()
        if folded in seen:
            repeated.append(name)
        seen[folded] = name
    if repeated:
        problems.append(
            f"the result would have more than one column named {', '.join(map(repr, dict.fromkeys(repeated)))}:"
            " rename or drop them on one side, or name shared keys in on (on='key' keeps one of them)"
        )


def _label(condition: JoinCondition, kind: str) -> str:
    if not condition.names:
        return "cross"
    terms = [
        pair.left if condition.using else f"{pair.left} {NULL_SAFE if pair.null_safe else '='} {pair.right}"
        for pair in condition.pairs
    ]
    terms += [f"{end.left} {end.op} {end.right}" for end in condition.ranges]
    return f"{kind} on {', '.join(terms)}"
