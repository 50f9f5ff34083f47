"""The filters of `scan_parquet`: parsed, then converted to an expression for workers or a condition for Spark."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from math import ceil, floor, isfinite
from numbers import Integral
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import TYPE_CHECKING, Any

from sparkext.plans.expressions.expression import Expression, among, column, condition, literal
from sparkext.plans.expressions.key_types import KeyType
from sparkext.spark.frames import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column

_COMPARED = {"=": "=", "==": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": eq,
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
_ORDERED = ("<", "<=", ">", ">=")
_LISTS = ("in", "not in")
_NULLS = ("is null", "is not null")
_OPERATORS = (*_COMPARED, "!=", *_LISTS, *_NULLS)
_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_EPOCH = datetime.datetime(1970, 1, 1)
_DAY_ZERO = datetime.date(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class ColumnTest:
    """`name op value` for one column. `texts` are the values as literals of an expression."""

    name: str
    op: str
    type: KeyType
    values: tuple[Any, ...]
    texts: tuple[str, ...]


Alternatives = tuple[tuple[ColumnTest, ...], ...]
"""A disjunction of conjunctions: all tests of at least one inner tuple must hold."""


def read_filters(
    filters: Any, types: Mapping[str, KeyType | None], find: Callable[[str], str | None], problems: list[str]
) -> Alternatives:
    """Parse a list of (name, operator, value), or a list of such lists; add to `problems` if it is invalid.

    `types` has the types of all columns, None if values cannot be compared. `find` maps a name to its column.
    """
    if filters is None:
        return ()
    if not isinstance(filters, (list, tuple)):
        problems.append(f"filters={filters!r}: expected a list of (name, operator, value), or a list of such lists")
        return ()
    if not filters:
        return ()
    alternatives = filters if all(isinstance(item, list) for item in filters) else [filters]
    if not all(alternatives):
        problems.append(
            "filters holds an empty list, which every row would satisfy: leave filters out to read all rows"
        )
    read = [tuple(_read_test(item, types, find, problems) for item in tests) for tests in alternatives]
    return tuple(tuple(test for test in tests if test is not None) for tests in read)


def _read_test(
    item: Any, types: Mapping[str, KeyType | None], find: Callable[[str], str | None], problems: list[str]
) -> ColumnTest | None:
    if not isinstance(item, tuple) or len(item) not in (2, 3) or not all(isinstance(part, str) for part in item[:2]):
        problems.append(f"filters holds {item!r}: expected (name, operator, value)")
        return None
    name, op = find(item[0]), " ".join(item[1].lower().split())
    if op not in _OPERATORS or (op in _NULLS) != (len(item) == 2):
        problems.append(
            f"filters holds {item!r}: expected one of {', '.join(_OPERATORS[:-2])} followed by a value, or"
            f" {' or '.join(_NULLS)} without a value"
        )
        return None
    if name is None:
        problems.append(f"filters names {item[0]!r}, which does not exist. Available: {', '.join(types)}")
        return None
    key_type = types[name]
    if op in _NULLS:
        return ColumnTest(name, op, key_type or KeyType("binary"), (), ())
    if key_type is None:
        problems.append(f"filters compares {name!r}: columns of its type can only be tested for null")
        return None
    if op in _LISTS and not (isinstance(item[2], (list, tuple, set, frozenset)) and item[2]):
        problems.append(f"filters holds {item!r}: {op!r} expects a list of one or more values")
        return None
    values = tuple(item[2]) if op in _LISTS else (item[2],)
    if key_type.name in _INTEGER_BITS:
        op, values = _convert_integer_test(op, values, key_type)
    if key_type.name == "bool" and op in _ORDERED:
        problems.append(f"filters holds {item!r}: booleans can only be tested for equality")
        return None
    texts = [_format_literal(value, key_type) for value in values]
    wrong = [value for value, text in zip(values, texts, strict=True) if text is None]
    if wrong:
        problems.append(
            f"filters compares {name!r} of type {key_type} with {wrong[0]!r}: expected {_describe_expected(key_type)}"
        )
        return None
    return ColumnTest(name, op, key_type, values, tuple(text for text in texts if text is not None))


def _convert_integer_test(op: str, values: tuple[Any, ...], key_type: KeyType) -> tuple[str, tuple[Any, ...]]:
    """Return an equivalent test of an integer column, with ints instead of floats, decimals and numpy's integers.

    Spark compares an integer with a double as doubles, which is exact for any integer if the double is between -2**53
    and 2**53. Values that are not comparable in this way are returned unchanged, and refused later.
    """
    values = tuple(map(_as_integer, values))
    between = [value for value in values if _is_exact(value)]
    if not between:
        return op, values
    if op in _ORDERED:
        return op[0], (floor(between[0]) if op[0] == ">" else ceil(between[0]),)
    rest = tuple(value for value in values if not _is_exact(value))
    if rest:
        return op, rest
    # No integer equals these values: return a test that is false (or true) for every integer, and null for null.
    return ("<" if op in ("=", "==", "in") else ">="), (-1 << (_INTEGER_BITS[key_type.name] - 1),)


def _as_integer(value: Any) -> Any:
    """Return the int that is equal to a number, or the value itself if there is none."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    return int(value) if is_whole or (_is_exact(value) and value == floor(value)) else value


def _is_exact(value: Any) -> bool:
    return isinstance(value, (float, Decimal)) and isfinite(value) and abs(int(value)) < 1 << 53


def _format_literal(value: Any, key_type: KeyType) -> str | None:
    """Return a value as the text of a literal, None if the type cannot represent it exactly."""
    name = key_type.name
    if name in _INTEGER_BITS:
        most = 1 << (_INTEGER_BITS[name] - 1)
        fits = isinstance(value, int) and not isinstance(value, bool) and -most <= value < most
        return str(value) if fits else None
    if name == "decimal" and isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return _format_decimal(Decimal(value), key_type)
    if name == "bool" and isinstance(value, bool):
        return str(value).lower()
    if name == "string" and isinstance(value, str):
        return value
    if name == "date" and isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return str((value - _DAY_ZERO).days)
    if name == "timestamp" and isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return str((value - _EPOCH.replace(tzinfo=datetime.timezone.utc)) // _MICROSECOND)
    if name == "timestamp_ntz" and isinstance(value, datetime.datetime) and value.tzinfo is None:
        return str((value - _EPOCH) // _MICROSECOND)
    return None


def _format_decimal(value: Decimal, key_type: KeyType) -> str | None:
    if not value.is_finite():
        return None
    digits = value.as_tuple()
    unscaled = int("".join(map(str, digits.digits)))
    shift = key_type.scale + int(digits.exponent)
    unscaled, rest = (unscaled * 10**shift, 0) if shift >= 0 else divmod(unscaled, 10**-shift)
    if rest or unscaled >= 10**key_type.precision:
        return None
    sign = "-" if digits.sign else ""
    units, part = divmod(unscaled, 10**key_type.scale)
    return f"{sign}{units}.{part:0{key_type.scale}}" if key_type.scale else f"{sign}{units}"


def _describe_expected(key_type: KeyType) -> str:
    if key_type.name == "decimal":
        return f"a Decimal or an int with at most {key_type.precision} digits, {key_type.scale} of them after the point"
    return {
        "date": "a datetime.date",
        "timestamp": "a datetime.datetime with a time zone",
        "timestamp_ntz": "a datetime.datetime without a time zone",
        "bool": "True or False",
        "string": "a str",
    }.get(key_type.name, "an int within its range, or a float or Decimal under 2**53")


def as_expression(alternatives: Alternatives, positions: Mapping[str, int]) -> Expression | None:
    """Return the condition on columns, given their positions by name; None without tests."""
    read = [
        _combine_conditions([_express_test(test, positions[test.name]) for test in tests], "and")
        for tests in alternatives
    ]
    return _combine_conditions(read, "or") if read else None


def _combine_conditions(conditions: Sequence[Expression], op: str) -> Expression:
    return conditions[0] if len(conditions) == 1 else condition(op, *conditions)


def _express_test(test: ColumnTest, position: int) -> Expression:
    tested = column(0, position, test.type)
    if test.op in _NULLS:
        positive = condition("is_null", column(0, position, None))
    elif test.op in _LISTS:
        positive = among(tested, test.texts)
    else:
        positive = condition(_COMPARED.get(test.op, "="), tested, literal(test.texts[0], test.type))
    return condition("not", positive) if test.op in ("!=", "not in", "is not null") else positive


def as_column(alternatives: Alternatives) -> Column | None:
    """Return the same condition as a Column of Spark; None without tests."""
    read = [reduce(and_, map(_express_for_spark, tests)) for tests in alternatives]
    return reduce(or_, read) if read else None


def _express_for_spark(test: ColumnTest) -> Column:
    from pyspark.sql import functions as F

    column = F.col(quote_name(test.name))
    if test.op in _NULLS:
        return column.isNull() if test.op == "is null" else column.isNotNull()
    # Passed as a Python value, a timestamp without a time zone would be converted with this process's time zone.
    local = test.type.name == "timestamp_ntz"
    values = [F.lit(str(value)).cast("timestamp_ntz") if local else F.lit(value) for value in test.values]
    if test.op in _LISTS:
        among = column.isin(values)
        return among if test.op == "in" else ~among
    compared: Column = _COMPARE[test.op](column, values[0])
    return compared
