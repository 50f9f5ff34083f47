"""A resolved as-of join: its nearest-value and equality columns, and its output, as in pandas' `merge_asof`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sparkext.joins.arguments import check_flag, read_kind
from sparkext.joins.columns import JoinInputs, check_names
from sparkext.joins.durations import read_duration
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.expressions.number_types import MOST_DIGITS
from sparkext.plans.pipeline.spec import DIRECTIONS, AsOf, JoinSpec, KeyPair

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

_INTEGERS = ("int8", "int16", "int32", "int64")
_TIMES = ("timestamp", "timestamp_ntz")
_MICROSECONDS_PER_DAY = 86_400_000_000
_BEYOND_WORDS = 10**20
_BEYOND_FLOATS = 10**308
_NUMBERS = {"decimal": "a Decimal or a whole number", "float32": "a number", "float64": "a number"}
"""Numbers that are tolerances, by type of the column."""


@dataclass(frozen=True)
class AsOfArguments:
    """The caller's arguments, unchecked."""

    on: Any
    by: Any
    direction: Any
    tolerance: Any
    allow_exact_matches: Any
    how: Any


def resolve_as_of(inputs: JoinInputs, arguments: AsOfArguments, problems: list[str]) -> ResolvedJoin | None:
    """Resolve names and types; return None if `problems` got longer."""
    before = len(problems)
    left, right = inputs.left, inputs.right
    kind = read_kind(arguments.how, ("inner", "left"), "as-of joins", problems) or "left"
    if arguments.direction not in DIRECTIONS:
        problems.append(f"direction={arguments.direction!r}: expected one of {', '.join(map(repr, DIRECTIONS))}")
    check_flag("allow_exact_matches", arguments.allow_exact_matches, problems)
    names = [*_parse_pairs([arguments.on], "on", problems), *_parse_pairs(_wrap_in_list(arguments.by), "by", problems)]
    positions = [inputs.resolve(left_name, right_name, problems) for left_name, right_name, _ in names]
    if len(problems) > before:
        return None
    columns = [(a, b) for a, b in positions if a is not None and b is not None]
    types = [inputs.find_type(a, b, problems) for a, b in columns]
    tolerance = _check_tolerance(arguments.tolerance, types[0], left[columns[0][0]].field, problems)
    shared_columns = {b for (_, b), (_, _, shared) in zip(columns, names, strict=True) if shared}
    outputs = [
        *left,
        *(out for position, out in enumerate(inputs.right_outputs(kind == "left")) if position not in shared_columns),
    ]
    check_names(outputs, inputs.case_sensitive, problems)
    if len(problems) > before:
        return None
    (on_left, on_right), *_ = columns
    keys = tuple(
        KeyPair(left[a].ref, b, str(key_type), null_safe=False)
        for (a, b), key_type in zip(columns[1:], types[1:], strict=True)
    )
    as_of = AsOf(
        left[on_left].ref,
        on_right,
        str(types[0]),
        arguments.direction,
        arguments.allow_exact_matches,
        tolerance,
    )
    spec = JoinSpec(kind, keys, inputs.algorithm, _spell_label(arguments, names), as_of=as_of)
    key_types = tuple(key_type for key_type in types[1:] if key_type is not None)
    return ResolvedJoin(
        spec, tuple(range(len(right))), tuple(outputs), key_types, tuple(right[b] for _, b in columns[1:])
    )


def _wrap_in_list(by: Any) -> Sequence[Any]:
    if by is None:
        return []
    return by if isinstance(by, list) else [by]


def _parse_pairs(items: Sequence[Any], argument: str, problems: list[str]) -> list[tuple[str, str, bool]]:
    """Return (left name, right name, whether the result has one column for both)."""
    pairs = []
    for item in items:
        if isinstance(item, str):
            pairs.append((item, item, True))
        elif isinstance(item, tuple) and len(item) == 2 and all(isinstance(name, str) for name in item):
            pairs.append((item[0], item[1], False))
        else:
            several = ", or a list of these" if argument == "by" else ""
            problems.append(
                f"{argument} holds {item!r}: expected a column name or a (left, right) tuple of names{several}"
            )
    return pairs


def _check_tolerance(
    tolerance: Any, on_type: KeyType | None, on: StructField, problems: list[str]
) -> int | float | None:
    """Return the tolerance in units of the type: days, microseconds, unscaled decimals, or the number itself."""
    if on_type is None:
        return None
    if not _has_distance(on_type):
        problems.append(
            f"on column {on.name!r} of type {on.dataType.simpleString()} does not support distances: expected integers,"
            f" floats, decimals of up to {MOST_DIGITS} digits, dates or timestamps"
        )
        return None
    if tolerance is None:
        return None
    if on_type.name in _TIMES:
        return read_duration("tolerance", tolerance, problems)
    if on_type.name == "date" and (not isinstance(tolerance, int) or isinstance(tolerance, bool) or tolerance < 0):
        duration = read_duration("tolerance", tolerance, problems, "a whole number of days, or ")
        return None if duration is None else duration // _MICROSECONDS_PER_DAY
    units = _convert_number(tolerance, on_type)
    if units is None:
        expected = _NUMBERS.get(on_type.name, "a whole number")
        problems.append(f"tolerance={tolerance!r}: expected {expected} of at least 0")
    return units


def _has_distance(on_type: KeyType) -> bool:
    if on_type.name == "decimal":
        return on_type.precision <= MOST_DIGITS
    return on_type.name in (*_INTEGERS, *_TIMES, "float32", "float64", "date")


def _convert_number(tolerance: Any, on_type: KeyType) -> int | float | None:
    """Return the tolerance in units of the type, None if it does not fit the type, is negative or is NaN."""
    floating = on_type.name in ("float32", "float64")
    numbers = (int, float, Decimal) if floating else (int, Decimal) if on_type.name == "decimal" else (int,)
    is_number = isinstance(tolerance, numbers) and not isinstance(tolerance, bool)
    if not is_number or _is_nan(tolerance) or tolerance < 0:
        return None
    # All tolerances beyond the type's range are equivalent, so they are capped.
    if floating:
        return float(tolerance) if tolerance < _BEYOND_FLOATS else math.inf
    return int(min(tolerance, _BEYOND_WORDS) * 10**on_type.scale)


def _is_nan(number: Any) -> bool:
    return number.is_nan() if isinstance(number, Decimal) else bool(number != number)


def _spell_label(arguments: AsOfArguments, names: Sequence[tuple[str, str, bool]]) -> str:
    terms = [left if shared else f"{left} = {right}" for left, right, shared in names[1:]]
    left, right, shared = names[0]
    near = left if shared else f"{left} ~ {right}"
    return f"{arguments.direction} as of {near}" + (f" by {', '.join(terms)}" if terms else "")
