"""Checks, before reading, that the values stored in a Parquet file are the values that Spark's own reader returns.

The session extension applies the same rules to every footer at planning time (`ParquetRules.scala`). Here there is no
planner: a file that violates the rules is an error, whose message names another way to read the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparkext.jvm_constants import MOST_DECIMAL_BYTES, PARQUET_TYPES
from sparkext.plans.expressions.key_types import KeyType
from sparkext.rows.types import arrow_key_type

READ_TYPES = frozenset(name for forms in PARQUET_TYPES.values() for name in forms.values())
"""The key types that can be read from files."""

_MOST_DIGITS = 38
_UNITS = {"milliseconds": "MILLIS", "microseconds": "MICROS", "nanoseconds": "NANOS"}
_WRITER = b"org.apache.spark.version"


@dataclass(frozen=True)
class Calendars:
    """Whether the session reads dates and timestamps of files not written by Spark without rebasing them."""

    datetime: bool
    int96: bool


def find_read_problem(
    metadata: Any, names: Sequence[str], name: str, leaf: int | None, target: pa.DataType, calendars: Calendars
) -> str | None:
    """Return why a column of a file cannot be read as Spark reads it; None if it can, or if the file lacks it.

    `metadata`: the file's footer. `names`: the file's top-level columns that match `name`, see
    `OpenedFile.match_names`. `leaf`: the index of the Parquet column with its values, None if it is nested.
    """
    if not names:
        return None
    if len(names) > 1:
        return f"it has several columns {name}"
    if names[0] != name and not (names[0] + name).isascii():
        # Java and Python differ in which letters are equal ignoring case.
        return f"it has column {name} spelled in a different case"
    if leaf is None:
        return f"column {name} is nested"
    column = metadata.schema.column(leaf)
    stored = _find_stored_type(column)
    if stored is None:
        return (
            f"column {name} is stored as {column.physical_type} {column.logical_type}, which Spark reads in its own way"
        )
    if stored != target:
        return f"column {name} has type {stored} in the file, expected {target}"
    return find_calendar_problem(metadata, name, leaf, target, calendars)


def find_calendar_problem(metadata: Any, name: str, leaf: int, target: pa.DataType, calendars: Calendars) -> str | None:
    """Return a reason if days of a column may be of another calendar; else None. Arguments: see `find_read_problem`."""
    if not _is_rebased(metadata.schema.column(leaf), target, metadata.metadata or {}, calendars):
        return None
    return (
        f"column {name} may use another calendar: set spark.sql.parquet.datetimeRebaseModeInRead and"
        " int96RebaseModeInRead to CORRECTED if it does not"
    )


def _find_stored_type(column: Any) -> pa.DataType | None:
    """Return Spark's type of a column as an Arrow type; None if Spark converts the stored values."""
    logical = json.loads(column.logical_type.to_json())
    name = PARQUET_TYPES.get(column.physical_type, {}).get(_spell_logical_type(logical))
    if name != "decimal":
        return None if name is None else arrow_key_type(KeyType(name))
    if column.precision > _MOST_DIGITS or column.length > MOST_DECIMAL_BYTES:
        return None
    return pa.decimal128(logical["precision"], logical["scale"])


def _spell_logical_type(logical: Mapping[str, Any]) -> str:
    """Spell a logical type as in `PARQUET_TYPES`, without the digits of decimals."""
    kind = logical["Type"]
    if kind == "Int":
        return f"INTEGER({logical['bitWidth']},{str(logical['isSigned']).lower()})"
    if kind == "Timestamp":
        return f"TIMESTAMP({_UNITS[logical['timeUnit']]},{str(logical['isAdjustedToUTC']).lower()})"
    return "" if kind == "None" else str(kind).upper()


def _is_rebased(column: Any, target: pa.DataType, metadata: Mapping[bytes, bytes], calendars: Calendars) -> bool:
    """Return whether Spark rebases days of a column: versions before 3 wrote days of the Julian calendar."""
    if column.physical_type == "INT96":
        first, legacy, corrected = b"3.1.0", b"org.apache.spark.legacyINT96", calendars.int96
    elif pa.types.is_date(target) or target == arrow_key_type(KeyType("timestamp")):
        first, legacy, corrected = b"3.0.0", b"org.apache.spark.legacyDateTime", calendars.datetime
    else:
        return False
    writer = metadata.get(_WRITER)
    return not corrected if writer is None else writer < first or legacy in metadata
