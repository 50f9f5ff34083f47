"""Random tables as plain data: columns, rows, and storage. Their `repr` is Python code."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.types import BY_FAMILY, BY_SQL, INT, OTHERS, SIMPLE, Type

PLAIN_NAMES = ("k", "id", "a", "b", "x", "y", "v", "n", "s", "ts", "day", "val_1")
ODD_NAMES = (
    *("a b", "x.y", "K`q", "it's", 'qu"ote', "ünï", "名前", "select", "Order", "a,b", "100%", "{c}", "#", "-", "k "),
    *("_metadata_", "c0", "count", "a=b", "[x]", "(y)", "a\\b", "\U0001f642", "İ", "null"),
)
NULL_RATES = (0.0,) * 8 + (0.1,) * 8 + (0.3,) * 4 + (0.6, 1.0)
_ROWS = ((0, 0), (1, 1), (2, 6), (7, 20), (21, 40))
_ROWS_WEIGHTS = (2, 3, 15, 55, 25)


@dataclass(frozen=True)
class Column:
    """A column; `type` is a key of `types.BY_SQL`."""

    name: str
    type: str

    @property
    def of(self) -> Type:
        """The type of this column."""
        return BY_SQL[self.type]


@dataclass(frozen=True)
class Storage:
    """How a table is stored: `way` is one of `WAYS`; the last `partitions` columns are directories."""

    way: str
    files: int = 1
    partitions: int = 0
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Table:
    """A table with all of its rows."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    storage: Storage


@dataclass(frozen=True)
class Universe:
    """Tables that queries read, and settings that these share."""

    name: str
    tables: tuple[Table, ...]
    extreme: bool
    settings: dict[str, str] = field(default_factory=dict)


WAYS = {"values": 3, "cached": 2, "spark parquet": 5, "pyarrow": 9, "spark orc": 1}
"""Ways to store a table, with their frequencies."""
_NOT_FOR = {
    "pyarrow": {"time", "span", "months", "variant", "folded", "void"},
    "spark orc": {"time", "span", "months", "variant", "folded", "void"},
    "spark parquet": {"void"},
    "cached": {"variant", "void"},
    "values": set[str](),
}
_DIRECTORIES = {"int", "string", "date", "bool", "decimal"}


def make_universe(name: str) -> Universe:
    """Return the tables that this name determines."""
    r = random.Random(f"universe {name}")
    extreme = r.random() < 0.25
    cased = r.random() < 0.2
    families = [r.choice(SIMPLE).family for _ in range(r.randint(3, 5))]
    if r.random() < 0.4:
        families.append(r.choice(OTHERS).family)
    tables = [_table(r, f"t{number}", families, extreme, cased) for number in range(r.choice((3, 4, 4)))]
    settings = {
        "spark.sql.caseSensitive": str(cased).lower(),
        "spark.sql.session.timeZone": r.choice(("America/New_York", "UTC", "Asia/Kolkata")),
    }
    return Universe(name, tuple(tables), extreme, settings)


def _table(r: random.Random, name: str, families: Sequence[str], extreme: bool, cased: bool) -> Table:
    way = r.choices(list(WAYS), list(WAYS.values()))[0]
    # The first column is a number in all tables, so that any two can be joined.
    kinds = [r.choice((INT, INT, *BY_FAMILY["int"]))]
    for _ in range(r.randint(2, 5)):
        kind = r.choice(BY_FAMILY[r.choice(families)])
        if kind.family not in _NOT_FOR[way]:
            kinds.append(kind)
    names = _names(r, len(kinds), cased)
    if way == "spark orc":  # Spark parses the rest of its schema's text as part of a name after a backtick
        names = [name.replace("`", "'") for name in names]
    partitions = _partitions(r, kinds) if way in ("spark parquet", "pyarrow") and r.random() < 0.25 else 0
    columns = tuple(Column(*both) for both in zip(names, (kind.sql for kind in kinds), strict=True))
    low, high = r.choices(_ROWS, _ROWS_WEIGHTS)[0]
    rows = r.randint(low, high)
    drawn = [_values(r, kind, extreme, rows) for kind in kinds]
    storage = Storage(way, r.choice((1, 1, 2, 3)), partitions, _options(r, way, columns))
    return Table(name, columns, tuple(zip(*drawn, strict=True)), storage)


def _partitions(r: random.Random, kinds: Sequence[Type]) -> int:
    most = 0
    for kind in reversed(kinds[1:]):
        if kind.family not in _DIRECTORIES:
            break
        most += 1
    return min(most, r.choice((1, 1, 2)))


def _names(r: random.Random, count: int, cased: bool) -> list[str]:
    names: list[str] = []
    while len(names) < count:
        name = r.choice(PLAIN_NAMES if r.random() < 0.7 else ODD_NAMES)
        if cased and r.random() < 0.3:
            name = r.choice((name.upper(), name.lower()))
        if name not in names and (cased or name.lower() not in [other.lower() for other in names]):
            names.append(name)
    return names


def _values(r: random.Random, kind: Type, extreme: bool, rows: int) -> list[Any]:
    null_rate = r.choice(NULL_RATES)
    among = r.sample(kind.usual, min(len(kind.usual), r.choice((2, 3, 5, 8, 20))))
    rare = extreme and kind.extreme and r.random() < 0.5

    def one() -> Any:
        if r.random() < null_rate:
            return None
        return r.choice(kind.extreme) if rare and r.random() < 0.2 else r.choice(among)

    return [one() for _ in range(rows)]


def _options(r: random.Random, way: str, columns: Sequence[Column]) -> tuple[tuple[str, Any], ...]:
    if way == "spark parquet":
        compression = r.choice(("snappy", "zstd", "none", "gzip", "lz4_raw"))
        version = r.choice(("v1", "v2"))
        options: dict[str, Any] = {
            "compression": compression,
            "parquet.enable.dictionary": r.choice(("true", "false")),
            # Spark 4.3 misreads strings of uncompressed DELTA_BYTE_ARRAY pages: it ignores the offset in their array.
            "parquet.writer.version": "v1" if compression == "none" else version,
            "timestamps": r.choice(("TIMESTAMP_MICROS", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS", "INT96")),
        }
    elif way == "pyarrow":
        options = {
            "row_group_size": r.choice((1, 3, 7, 1000)),
            "compression": r.choice(("none", "snappy", "zstd", "gzip", "lz4")),
            "use_dictionary": r.choice((True, False)),
            "data_page_version": r.choice(("1.0", "2.0")),
            "write_statistics": r.choice((True, True, False)),
            "use_deprecated_int96_timestamps": r.random() < 0.25,
            "store_decimal_as_integer": r.random() < 0.3,
            "write_page_index": r.random() < 0.3,
            "unsigned": tuple(
                column.name for column in columns if column.of.family in ("int", "decimal") and r.random() < 0.3
            ),
            "coarse_time": r.random() < 0.3,
            "required": r.random() < 0.3,
            "without_row_groups": r.random() < 0.5,
        }
    else:
        options = {}
    return tuple(options.items())
