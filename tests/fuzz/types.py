"""The types of columns: their SQL names, values to draw, and literals.

Types of one family can replace each other in an expression. Values are few, so that joins find matches.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

NUMBERS = ("int", "decimal", "float")
EXACT = ("bool", "int", "decimal", "string", "binary", "date", "timestamp", "ntz", "time", "span")
"""Families whose equal values are identical, so that rows can be ordered by them, and equal values be deduplicated."""
ABOUT = "about"
"""The family of floats whose last digits depend on the order of rows. Queries only return them."""


@dataclass(frozen=True)
class Type:
    """A SQL type. Most draws are `usual` values; `extreme` ones are drawn if arithmetic may fail."""

    sql: str
    family: str
    usual: tuple[Any, ...]
    literal: Callable[[Any], str]
    extreme: tuple[Any, ...] = ()

    def of(self, value: Any) -> str:
        """Return a value, or null, as SQL."""
        return f"CAST(NULL AS {self.sql})" if value is None else self.literal(value)


def quoted_text(text: str) -> str:
    """Return a string literal that Spark reads as `text`."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _cast(name: str) -> Callable[[Any], str]:
    return lambda value: f"CAST({quoted_text(str(value))} AS {name})"


def _float(name: str) -> Callable[[Any], str]:
    def literal(value: float) -> str:
        if math.isnan(value) or math.isinf(value):
            return f"CAST('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}' AS {name})"
        return f"CAST('{value!r}' AS {name})"

    return literal


def _integers(name: str, bits: int) -> Type:
    most = 2 ** (bits - 1) - 1
    suffix = {"tinyint": "Y", "smallint": "S", "bigint": "L"}.get(name, "")

    def literal(value: int) -> str:
        return f"{value}{suffix}" if -most <= value else f"CAST('{value}' AS {name})"

    return Type(name, "int", tuple(range(-2, 10)), literal, (most, -most - 1, most - 1, 100))


def _decimals(precision: int, scale: int) -> Type:
    name = f"decimal({precision},{scale})"
    unit = Decimal(1).scaleb(-scale)
    ends = tuple(Decimal((sign, (9,) * precision, -scale)) for sign in (0, 1))
    usual = tuple(
        half for half in ((Decimal(number) / 2).quantize(unit) for number in range(-3, 12)) if abs(half) <= ends[0]
    )
    return Type(name, "decimal", usual, _cast(name), ends)


def _timed(word: str) -> Callable[[Any], str]:
    return lambda value: f"{word}'{value}'"


def _instant(value: dt.datetime) -> str:
    return f"TIMESTAMP'{value.astimezone(dt.timezone.utc).replace(tzinfo=None).isoformat(sep=' ')}Z'"


def _span(value: dt.timedelta) -> str:
    micros = value // dt.timedelta(microseconds=1)
    return (
        f"(INTERVAL '{micros / 1_000_000:.6f}' SECOND)"
        if abs(micros) < 10**7
        else f"make_dt_interval(0, 0, 0, {micros / 1e6:.6f})"
    )


def _array(values: Sequence[int | None]) -> str:
    return f"CAST(array({', '.join('NULL' if v is None else str(v) for v in values)}) AS array<int>)"


def _struct(value: dict[str, Any]) -> str:
    return f"named_struct('a', {INT.of(value['a'])}, 'b', {STRING.of(value['b'])})"


def _map(value: Sequence[tuple[str, int]]) -> str:
    inside = ", ".join(f"{quoted_text(key)}, {number}" for key, number in value)
    return f"CAST(map({inside}) AS map<string,int>)"


_TEXTS = ("", "a", "A", "b", "a ", "ab", "ä", "it's", "100%", "a_b", "key" * 9, "名", "b\\c", "7", "3")
_MORNING = dt.datetime(2024, 3, 10, 1, 30)  # half an hour before New York's clocks go forward
_MOMENTS = tuple(_MORNING + dt.timedelta(minutes=20 * number, microseconds=number % 2) for number in range(8))
_EARLY = (dt.datetime(1900, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(9999, 12, 31, 5))

BOOLEAN = Type("boolean", "bool", (True, False), lambda value: str(value).lower())
TINYINT = _integers("tinyint", 8)
SMALLINT = _integers("smallint", 16)
INT = _integers("int", 32)
BIGINT = _integers("bigint", 64)
_FLOATS = (0.0, -0.0, 1.0, 1.5, 2.0, -1.5, 3.0, 4.0, 0.5, math.nan)
FLOAT = Type("float", "float", _FLOATS, _float("float"), (math.inf, -math.inf, 1.0000000150474662e30))
DOUBLE = Type("double", "float", _FLOATS, _float("double"), (math.inf, -math.inf, 1e300, 5e-324))
STRING = Type("string", "string", _TEXTS, quoted_text)
BINARY = Type("binary", "binary", (*(t.encode() for t in _TEXTS[:9]), b"\x00\xff"), lambda v: f"X'{v.hex()}'")
DATE = Type(
    "date",
    "date",
    tuple(dt.date(2024, 2, 27) + dt.timedelta(days=number) for number in range(8)),
    _timed("DATE"),
    (dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 4)),
)
TIMESTAMP = Type(
    "timestamp",
    "timestamp",
    tuple(moment.replace(tzinfo=dt.timezone.utc) for moment in _MOMENTS),
    _instant,
    tuple(moment.replace(tzinfo=dt.timezone.utc) for moment in _EARLY),
)
LOCAL = Type("timestamp_ntz", "ntz", _MOMENTS, _timed("TIMESTAMP_NTZ"), _EARLY)
TIME = Type("time(6)", "time", tuple(dt.time(hour, 30, 0, hour) for hour in range(0, 24, 3)), _timed("TIME"))
SPAN = Type(
    "interval day to second", "span", tuple(dt.timedelta(minutes=30 * n, microseconds=n) for n in range(-2, 7)), _span
)
MONTHS = Type("interval year to month", "months", tuple(range(-2, 15)), lambda months: f"make_ym_interval(0, {months})")
ARRAY = Type("array<int>", "array", ([], [1], [1, 2], [None], [2, None, 3]), _array)
STRUCT = Type(
    "struct<a:int,b:string>", "struct", ({"a": 1, "b": "x"}, {"a": None, "b": ""}, {"a": 2, "b": None}), _struct
)
MAP = Type("map<string,int>", "map", ([], [("a", 1)], [("a", 1), ("b", 2)]), _map)
VARIANT = Type("variant", "variant", ("1", '"x"', "[1, 2]", '{"a": 1.5}'), lambda v: f"parse_json({quoted_text(v)})")
FOLDED = Type(
    "string collate UTF8_LCASE", "folded", _TEXTS[:6], lambda v: f"CAST({quoted_text(v)} AS STRING) COLLATE UTF8_LCASE"
)
VOID = Type("void", "void", (None,), lambda value: "NULL")

_WIDE = (_decimals(30, 2), _decimals(38, 10), _decimals(38, 0), _decimals(38, 20))
_NARROW = (_decimals(1, 0), _decimals(2, 2), _decimals(9, 2), _decimals(18, 4), _decimals(12, 0))
DECIMALS = (*_NARROW, _decimals(20, 0), _decimals(20, 0), *_WIDE)
SIMPLE = (
    *(BOOLEAN, TINYINT, SMALLINT, INT, INT, BIGINT, BIGINT, FLOAT, DOUBLE, STRING, STRING, BINARY),
    *(DATE, DATE, TIMESTAMP, TIMESTAMP, LOCAL, TIME, SPAN, *DECIMALS),
)
"""Types that can be keys of a pipelined join; common types are repeated."""
OTHERS = (MONTHS, ARRAY, STRUCT, MAP, VARIANT, FOLDED, VOID)
BY_FAMILY = {
    "bool": (BOOLEAN,),
    "int": (TINYINT, SMALLINT, INT, BIGINT),
    "decimal": DECIMALS,
    "float": (FLOAT, DOUBLE),
    "string": (STRING,),
    "binary": (BINARY,),
    "date": (DATE,),
    "timestamp": (TIMESTAMP,),
    "ntz": (LOCAL,),
    "time": (TIME,),
    "span": (SPAN,),
    "months": (MONTHS,),
    "array": (ARRAY,),
    "struct": (STRUCT,),
    "map": (MAP,),
    "variant": (VARIANT,),
    "folded": (FOLDED,),
    "void": (VOID,),
    ABOUT: (DOUBLE,),
}
BY_SQL = {kind.sql: kind for kinds in BY_FAMILY.values() for kind in kinds}
