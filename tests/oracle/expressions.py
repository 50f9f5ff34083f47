"""What Spark makes of an expression, value by value and step by step: what both evaluators are held against.

Null is None, integers are exact until they are fitted, and decimals are their unscaled digits.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from sparkext.plans.expression import DATE_FIELDS, Expression
from sparkext.plans.key_types import parse_key_type
from sparkext.plans.number_types import FLOATS, INTEGERS, number_type, unscaled
from tests.kernels.support import SAMPLES


class Failure(ArithmeticError):
    """Spark's evaluation comes upon an overflow or a division by zero in ANSI mode."""


def evaluate(node: Expression, row: dict[tuple[int, int], Any]) -> Any:
    """The value of an expression; what Spark would not look at, because of what it has seen before, cannot fail."""
    parts: Iterator[Any] = (evaluate(argument, row) for argument in node.args)
    if node.op == "column":
        return row[node.source, node.column]
    if node.op == "literal":
        return None if node.text is None else literal_value(node, node.text)
    if node.op in ("and", "or"):
        return connected(parts, decisive=node.op == "or")
    if node.op == "coalesce":
        return next((part for part in parts if part is not None), None)
    if node.op == "if":
        return evaluate(node.args[1 if next(parts) else 2], row)
    if node.op == "is_null":
        return next(parts) is None
    if node.op == "in":
        return among(node, next(parts))
    if node.op in ("<=>", "least", "greatest"):
        return of_all(node.op, [*parts])
    if node.op in ("/", "%", "over"):
        return divided(node, evaluate(node.args[1], row), parts)
    values = []
    for part, argument in zip(parts, node.args, strict=True):
        if part is None:
            return None
        values.append(at_scale_of(node, part, argument) if node.op in ("+", "-", "cast") else part)
    if node.op in ROUNDED:
        return rounded(node, ROUNDED[node.op](*map(fraction, node.args, values)))
    if node.op in DATE_FIELDS:
        return date_field(node.op, *values)
    return fitted(STRICT[node.op](*values), node)


def fraction(node: Expression, digits: int) -> Fraction:
    return Fraction(digits, 10**node.scale)


def rounded(node: Expression, exact: Fraction) -> int | None:
    """The digits of a decimal, rounded half up; null or a failure if the type has no room for them."""
    assert node.type is not None
    digits = math.floor(abs(exact) * 10**node.scale + Fraction(1, 2)) * (-1 if exact < 0 else 1)
    if abs(digits) < 10**node.type.precision:
        return digits
    if node.checked:
        raise Failure
    return None


def date_field(op: str, days: int) -> int:
    day = np.datetime64(days, "D")
    year, month = int(day.astype("M8[Y]").astype(int)) + 1970, int(day.astype("M8[M]").astype(int)) % 12 + 1
    return {
        "year": year,
        "quarter": (month + 2) // 3,
        "month": month,
        "day": days - int(day.astype("M8[M]").astype("M8[D]").astype(int)) + 1,
        "day_of_year": days - int(day.astype("M8[Y]").astype("M8[D]").astype(int)) + 1,
        # The first day of 1970 was a Thursday.
        "day_of_week": (days + 4) % 7 + 1,
        "weekday": (days + 3) % 7,
    }[op]


def substring(text: str, position: int, length: int) -> str:
    """From the first character on, or from the last one back; what lies before the first counts as well."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


def like(text: str, pattern: str) -> bool:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    known = {"%": ".*", "_": "."}
    return re.fullmatch("".join(known.get(part, re.escape(part[-1])) for part in parts), text, re.DOTALL) is not None


def at_scale_of(node: Expression, value: Any, argument: Expression) -> Any:
    """The digits of a number as those of what is computed from it."""
    if argument.scale and node.type is not None and node.type.name in FLOATS:
        return float(fraction(argument, value))
    return value * 10 ** (node.scale - argument.scale) if node.scale else value


def among(node: Expression, value: Any) -> bool | None:
    """As a chain of OR: a null in the list leaves open what is not found."""
    if value is None:
        return None
    return order(value) in listed(node) or (None if None in node.texts else False)


@lru_cache(maxsize=4)
def listed(node: Expression) -> set[tuple[bool, Any]]:
    return {order(literal_value(node.args[0], text)) for text in node.texts if text is not None}


def literal_value(node: Expression, text: str) -> Any:
    name = "" if node.type is None else node.type.name
    if name in ("bool", "string"):
        return text == "true" if name == "bool" else text
    return float(text) if name in FLOATS else unscaled(text, node.scale)


def text_of(value: Any, scale: int = 0) -> str | None:
    """A value as the text of a literal."""
    if scale == 0 or value is None:
        return None if value is None else value if isinstance(value, str) else str(value).lower()
    sign, digits, _ = Decimal(value).as_tuple()
    return f"{Decimal((sign, digits, -scale)):f}"


def texts_of(kind: str) -> list[str | None]:
    """Null, and the values of the samples of a key type, as texts of literals."""
    return [text_of(value, parse_key_type(kind).scale) for value in [None, *SAMPLES[kind].values]]


def connected(parts: Iterator[Any], decisive: bool) -> bool | None:
    result: bool | None = not decisive
    for part in parts:
        if part is decisive:
            return decisive
        result = None if part is None else result
    return result


def of_all(op: str, values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if op == "<=>":
        return len({*map(order, known)}) == 1 if len(known) == 2 else not known
    return (min if op == "least" else max)(known, key=order) if known else None


def divided(node: Expression, divisor: Any, parts: Iterator[Any]) -> Any:
    """Spark looks at the divisor first, and at the dividend only where that leaves it a chance."""
    if divisor is None or (divisor == 0 and not node.checked):
        return None
    dividend = next(parts)
    if dividend is None:
        return None
    if divisor == 0:
        raise Failure
    if node.op == "over":
        return rounded(node, fraction(node.args[0], dividend) / fraction(node.args[1], divisor))
    if node.op == "/":
        return dividend / divisor
    if node.number in FLOATS:
        return math.nan if math.isinf(dividend) else math.fmod(dividend, divisor)
    return abs(dividend) % abs(divisor) * (-1 if dividend < 0 else 1)


def order(value: Any) -> tuple[bool, Any]:
    """As Spark compares: NaN equals NaN and is larger than all others, 0.0 equals -0.0."""
    return (True, 0) if value != value else (False, value)


def fitted(value: Any, node: Expression) -> Any:
    """A result as a value of the node's type."""
    number = None if node.type is None else number_type(node.type)
    if number in FLOATS:
        return float(np.asarray(value).astype(node.number))
    if number in INTEGERS:
        limits = np.iinfo(node.number)
        if node.checked and not limits.min <= value <= limits.max:
            raise Failure
        return (value - int(limits.min)) % (1 << limits.bits) + int(limits.min)
    return value


STRICT: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "=": lambda one, other: order(one) == order(other),
    "<": lambda one, other: order(one) < order(other),
    "<=": lambda one, other: order(one) <= order(other),
    ">": lambda one, other: order(one) > order(other),
    ">=": lambda one, other: order(one) >= order(other),
    "negate": operator.neg,
    "abs": abs,
    "sqrt": lambda value: math.nan if value < 0 else math.sqrt(value),
    "cast": lambda value: value,
    "not": operator.not_,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": operator.contains,
    "like": like,
    "unscaled": lambda digits: digits,
    "substring": substring,
    "length": len,
    "concat": lambda *parts: "".join(parts),
}
ROUNDED: dict[str, Callable[..., Fraction]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
    "to_decimal": lambda value: value,
}
