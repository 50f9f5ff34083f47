"""The key types that can be compared, and their common types: Spark's coercions, if this package covers them exactly.

Types have Arrow's names (`int32`, `decimal`, `timestamp`), but this module imports neither Spark nor Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass

_INTEGER_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 20}
_INTEGERS = tuple(_INTEGER_DIGITS)
_FLOATS = ("float32", "float64")
MOST_DECIMAL_DIGITS = 38

KEY_TYPE_NAMES = (
    "bool",
    *_INTEGERS,
    *_FLOATS,
    "decimal",
    "date",
    "timestamp",
    "timestamp_ntz",
    "time",
    "daytime_interval",
    "string",
    "binary",
)


@dataclass(frozen=True)
class KeyType:
    """The type of a join key. `precision` and `scale` are set for decimals only."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        """Spell the type for messages and for the pipeline spec; `parse_key_type` reads it back."""
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name


def parse_key_type(text: str) -> KeyType:
    """Read the result of `str(KeyType)`. Raises `ValueError`."""
    name, _, digits = text.partition("(")
    if name not in KEY_TYPE_NAMES:
        raise ValueError(f"not a key type: {text!r}")
    if name != "decimal":
        return KeyType(name)
    precision, scale = digits.rstrip(")").split(",")
    return KeyType(name, int(precision), int(scale))


def common_key_type(left: KeyType, right: KeyType) -> KeyType | None:
    """Return the type in which Spark compares the two, or None if this package does not cover it exactly.

    Covered: equal types; integers of any width; integers with doubles; floats with doubles; decimals with decimals
    and with integers, if no digit is lost. Not covered, because Spark's comparison depends on its ANSI mode or loses
    digits: strings with anything else, integers with floats, decimals with floats or doubles, dates with timestamps.
    """
    if left == right:
        return left
    names = {left.name, right.name}
    if names <= set(_INTEGERS):
        return max(left, right, key=lambda key_type: _INTEGER_DIGITS[key_type.name])
    if names == set(_FLOATS):
        return KeyType("float64")
    if "float64" in names and names & set(_INTEGERS):
        return KeyType("float64")
    if "decimal" in names and names <= {"decimal", *_INTEGERS}:
        return _common_decimal(_as_decimal(left), _as_decimal(right))
    return None


def _as_decimal(key_type: KeyType) -> KeyType:
    if key_type.name == "decimal":
        return key_type
    return KeyType("decimal", _INTEGER_DIGITS[key_type.name], 0)


def _common_decimal(left: KeyType, right: KeyType) -> KeyType | None:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    return KeyType("decimal", precision, scale) if precision <= MOST_DECIMAL_DIGITS else None
