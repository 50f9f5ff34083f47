"""The types of CQL, and the common type of two types."""

from __future__ import annotations

from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.expressions.number_types import FLOATS, INTEGERS

BOOL, STRING, DATE, TIMESTAMP = map(KeyType, ("bool", "string", "date", "timestamp"))
INT, LONG, DOUBLE = map(KeyType, ("int32", "int64", "float64"))

_NAMES = {
    **dict.fromkeys(("boolean", "bool"), BOOL),
    **dict.fromkeys(("tinyint", "byte"), KeyType("int8")),
    **dict.fromkeys(("smallint", "short"), KeyType("int16")),
    **dict.fromkeys(("int", "integer"), INT),
    **dict.fromkeys(("bigint", "long"), LONG),
    **dict.fromkeys(("float", "real"), KeyType("float32")),
    "double": DOUBLE,
    **dict.fromkeys(("string", "varchar", "text"), STRING),
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": KeyType("timestamp_ntz"),
}
TYPE_NAMES = tuple(_NAMES)

_SPELLED = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
}


def parse_type(name: str) -> KeyType | None:
    """Return a type by its SQL name, None if there is no such type."""
    return _NAMES.get(name.lower())


def spell_type(kind: KeyType) -> str:
    """Return the name of a type in SQL."""
    return _SPELLED.get(kind.name, kind.name)


def is_number(kind: KeyType) -> bool:
    """Whether a type is numeric."""
    return kind.name in (*INTEGERS, *FLOATS)


def unify_types(left: KeyType, right: KeyType) -> KeyType | None:
    """Return the type that holds the values of both types, None if there is none.

    Two integer types become the wider one; an integer and a float, or two different floats, become a double.
    """
    if left == right:
        return left
    if not (is_number(left) and is_number(right)):
        return None
    if {left.name, right.name} <= {*INTEGERS}:
        return max(left, right, key=lambda kind: INTEGERS.index(kind.name))
    return DOUBLE
