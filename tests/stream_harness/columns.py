"""The columns of a stream: their types, and how a query derives them from the columns that its files store.

The derivation decides which columns are NOT NULL, because Spark's file source declares every stored column as nullable.
No derivation changes a value other than NULL, so that the harness can compute the rows of a stream without Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.fuzz.types import ARRAY, BY_SQL, MAP, MONTHS, SIMPLE, SPAN, STRUCT, TIME, VARIANT, Type
from tests.support.sql import quoted

FOLDED_INTO_STRUCT = "field"
WAYS = {"stored": 6, "renamed": 3, "filled": 3, "literal": 1, "computed": 2, FOLDED_INTO_STRUCT: 1, "required": 1}
"""Ways to derive a column, with their frequencies.

`stored`: under its own name; `renamed`: under another one; `filled`: `coalesce` with a constant, NOT NULL; `literal`:
only the constant, NOT NULL; `computed`: by an expression; `field`: a field of a stored struct; `required`: rows with
NULL in it are filtered out.
"""


def _struct(sql: str, *values: Any, **fields: Type) -> Type:
    def literal(value: Any) -> str:
        inside = (f"'{name}', {kind.of(value[name])}" for name, kind in fields.items())
        return f"named_struct({', '.join(inside)})"

    return Type(sql, "struct", values, literal)


def _array(sql: str, element: Type, *values: Any) -> Type:
    def literal(value: Any) -> str:
        return f"array({', '.join(map(element.of, value))})" if value else f"CAST(array() AS {sql})"

    return Type(sql, "array", values, literal)


def _map(sql: str, key: Type, item: Type, *values: Any) -> Type:
    def literal(value: Any) -> str:
        inside = ", ".join(f"{key.of(name)}, {item.of(one)}" for name, one in value)
        return f"map({inside})" if value else f"CAST(map() AS {sql})"

    return Type(sql, "map", values, literal)


_INT, _STRING, _DATE, _DECIMAL = (BY_SQL[sql] for sql in ("int", "string", "date", "decimal(9,2)"))
_INNER = _struct(
    "struct<d:date,x:decimal(9,2)>", {"d": dt.date(2024, 2, 29), "x": Decimal("1.50")}, d=_DATE, x=_DECIMAL
)
NESTED = (
    ARRAY,
    STRUCT,
    MAP,
    _INNER,
    _array(
        "array<struct<d:date,x:decimal(9,2)>>", _INNER, [], [{"d": None, "x": Decimal("0.25")}], [*_INNER.usual] * 2
    ),
    _array("array<string>", _STRING, [], ["a", "ä"], [None]),
    _map("map<string,array<int>>", _STRING, ARRAY, [], [("k", [1, None])], [("k", None), ("", [])]),
    _struct(
        "struct<in:struct<d:date,x:decimal(9,2)>,n:bigint>",
        {"in": {"d": None, "x": None}, "n": 1},
        {"in": None, "n": None},
        **{"in": _INNER, "n": BY_SQL["bigint"]},
    ),
)
"""Types of payload columns, which cannot be keys."""

KEYS = tuple(kind for kind in SIMPLE if kind not in (TIME, SPAN))
"""Types of keys: all simple types that a Parquet file can store."""
PAYLOADS = (*KEYS, *NESTED, *NESTED, SPAN)
TYPES = {kind.sql: kind for kind in (*PAYLOADS, MONTHS, VARIANT)}


@dataclass(frozen=True)
class Column:
    """A column as an operator reads it; `type` is a key of `TYPES`."""

    name: str
    type: str

    @property
    def of(self) -> Type:
        """The type of this column."""
        return TYPES[self.type]


@dataclass(frozen=True)
class Derivation:
    """How one source derives a column, one of `WAYS`; `constant` is the value of `filled` and `literal`."""

    way: str = "stored"
    constant: Any = None

    def value(self, stored: Any) -> Any:
        """Return the derived value of a stored one."""
        if self.way == "literal" or (self.way == "filled" and stored is None):
            return self.constant
        return stored


def stored_name(column: Column, derivation: Derivation, place: int) -> str:
    """Return the name of a column in the files."""
    return column.name if derivation.way in ("stored", "filled", "required") else f"stored_{place}"


def expression(column: Column, derivation: Derivation, place: int, never_null: str) -> str:
    """Return the SQL of a column over the columns of the files; `never_null` is the SQL of one without NULLs."""
    stored = quoted(stored_name(column, derivation, place))
    if derivation.way == FOLDED_INTO_STRUCT:
        stored = f"{stored}.inside"
    of: Callable[[Any], str] = column.of.of
    made = {
        "filled": f"coalesce({stored}, {of(derivation.constant)})",
        "literal": of(derivation.constant),
        "computed": f"CASE WHEN {never_null} IS NOT NULL THEN {stored} END",
    }.get(derivation.way, stored)
    return f"{made} AS {quoted(column.name)}"
