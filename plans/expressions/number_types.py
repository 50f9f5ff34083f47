"""The key types that compiled code can compute with, and the machine number type of each."""

from __future__ import annotations

from decimal import Decimal

from sparkext.plans.expressions.key_types import KeyType

INTEGERS = ("int8", "int16", "int32", "int64")
FLOATS = ("float32", "float64")
NUMBER_TYPES = ("bool", *INTEGERS, *FLOATS)
WORDS = {"date": "int32", "timestamp": "int64", "timestamp_ntz": "int64", "daytime_interval": "int64"}
"""Dates are stored as days, timestamps and intervals as microseconds."""
MOST_DIGITS = 18
"""Decimals are stored as unscaled digits. Decimals of more digits do not fit a machine word."""


def number_type(key_type: KeyType) -> str | None:
    """Return the number type of a key type's values, one of `NUMBER_TYPES`, or None if they are not numbers."""
    if key_type.name == "decimal":
        return "int64" if key_type.precision <= MOST_DIGITS else None
    return key_type.name if key_type.name in NUMBER_TYPES else WORDS.get(key_type.name)


def parse_unscaled(text: str, scale: int) -> int:
    """Return a decimal of at most `scale` decimal places, multiplied by 10 ** `scale`, as an integer."""
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int) and exponent + scale >= 0, f"{text} has more than {scale} places"
    value: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -value if sign else value
