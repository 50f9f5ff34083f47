"""Parquet scans inside the pipeline, as plain data: columns, filters, and splits of files.

The JVM plans splits as for its own reader and sends them to workers. The reader of a split emits the row groups whose
midpoint is in the split, so that every row group is read exactly once (Spark's rule).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from sparkext.plans.expressions.evaluators import ARROW
from sparkext.plans.expressions.expression import Expression, parse_expression
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.pipeline.spec import MIRRORED

BoundValue = int | bytes | Decimal
"""A value in the form that bounds compare: integers, days, microseconds, decimals, strings as UTF-8 bytes."""


@dataclass(frozen=True)
class ScanColumn:
    """A column that the query calls `name`: partition value number `partition`, or the files' column `stored`.

    `stored` is the column's name in the files, or the field id that a table format has assigned to it. If both are
    None, the column has the same name in the files.
    """

    name: str
    partition: int | None = None
    stored: str | int | None = None

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ScanColumn:
        """Read the JSON form that the JVM writes."""
        return cls(data["name"], data.get("partition"), data.get("stored"))

    @property
    def in_files(self) -> str | int | None:
        """The column's name or field id in files; None for partition values."""
        if self.partition is not None:
            return None
        return self.name if self.stored is None else self.stored


@dataclass(frozen=True)
class ScanSpec:
    """The output of a scan: the first `outputs` of its `columns`, for rows on which `filter` is true.

    The remaining columns are only read for the filter. Arrow evaluates it; it refers to source 0 and to positions in
    `columns`. The case of letters in names matters if `case_sensitive`.
    """

    columns: tuple[ScanColumn, ...]
    outputs: int
    filter: Expression | None
    case_sensitive: bool

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ScanSpec:
        """Read the JSON form that the JVM writes."""
        return cls(
            tuple(map(ScanColumn.from_data, data["columns"])),
            data["outputs"],
            ARROW.check(parse_expression(data["filter"])) if "filter" in data else None,
            data["case_sensitive"],
        )


@dataclass(frozen=True)
class Split:
    """Bytes `start` to `start + length` of a file, and the texts of its partition values (None: null).

    `deleted`: the deleted rows of the file, in the form that `parquet/deleted_rows.py` reads; empty if there are none.
    """

    path: str
    start: int
    length: int
    values: tuple[str | None, ...]
    deleted: str = ""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Split:
        """Read the JSON form that the JVM writes."""
        return cls(data["path"], data["start"], data["length"], tuple(data["values"]), data.get("deleted", ""))

    def owns(self, offset: int, size: int) -> bool:
        """Return whether a row group of `size` bytes from `offset` on belongs to this split."""
        return self.start <= offset + size // 2 < self.start + self.length


@dataclass(frozen=True)
class DataFile:
    """A file of `length` bytes, and the texts of its partition values (None: null)."""

    path: str
    length: int
    values: tuple[str | None, ...] = ()

    def split(self, start: int, length: int) -> Split:
        """Return a part of the file."""
        return Split(self.path, start, length, self.values)


def plan_splits(files: Sequence[DataFile], cores: int, most: int, open_cost: int) -> list[tuple[Split, ...]]:
    """Divide files among tasks, as Spark does: each task has about the same number of bytes, and at most `most`.

    `open_cost`: the number of bytes that cost as much to read as a file costs to open.
    """
    total = sum(file.length + open_cost for file in files)
    limit = max(1, min(most, max(open_cost, total // max(cores, 1))))
    splits = [
        file.split(start, min(limit, file.length - start)) for file in files for start in range(0, file.length, limit)
    ]
    tasks: list[tuple[Split, ...]] = []
    current: list[Split] = []
    size = 0
    for split in sorted(splits, key=lambda split: -split.length):
        if current and size + split.length > limit:
            tasks.append(tuple(current))
            current, size = [], 0
        current.append(split)
        size += split.length + open_cost
    return [*tasks, tuple(current)] if current else tasks


@dataclass(frozen=True)
class ColumnBounds:
    """Statistics of a column: no value is below `low` or above `high`, and `nulls` values are null. None is unknown."""

    low: BoundValue | None = None
    high: BoundValue | None = None
    nulls: int | None = None


def may_hold(condition: Expression, bounds: Callable[[int], ColumnBounds], rows: int) -> bool:
    """Return whether the condition may be true on any of `rows` rows whose columns are within `bounds(column)`.

    False only if the bounds rule it out. String tests and negations, except IS NOT NULL, rule nothing out.
    """
    if condition.op == "and":
        return all(may_hold(part, bounds, rows) for part in condition.args)
    if condition.op == "or":
        return any(may_hold(part, bounds, rows) for part in condition.args)
    if condition.op == "not":
        return _may_fail(condition.args[0], bounds, rows)
    if condition.op == "is_null":
        (tested,) = condition.args
        return tested.op != "column" or bounds(tested.column).nulls != 0
    if condition.op == "in":
        return _may_be_among(condition, bounds)
    if condition.op in _MIRRORED:
        left, right = condition.args
        if (left.op, right.op) == ("column", "literal"):
            return _may_compare(condition.op, left, right, bounds)
        if (left.op, right.op) == ("literal", "column"):
            return _may_compare(_MIRRORED[condition.op], right, left, bounds)
    return True


_MIRRORED = {"=": "=", **MIRRORED}


def _may_fail(condition: Expression, bounds: Callable[[int], ColumnBounds], rows: int) -> bool:
    """Return whether the condition may be false on any row. Only a null test of a column of nulls rules this out."""
    if condition.op != "is_null" or condition.args[0].op != "column":
        return True
    return bounds(condition.args[0].column).nulls != rows


def _may_be_among(condition: Expression, bounds: Callable[[int], ColumnBounds]) -> bool:
    (value,) = condition.args
    if value.op != "column" or value.type is None:
        return True
    listed = _parse_sorted_bounds(condition.texts, value.type)
    if listed is None:
        return True
    column_bounds = bounds(value.column)
    position = 0 if column_bounds.low is None else bisect_left(listed, column_bounds.low)
    return position < len(listed) and (column_bounds.high is None or not _is_less(column_bounds.high, listed[position]))


@lru_cache(maxsize=16)
def _parse_sorted_bounds(texts: tuple[str | None, ...], key_type: KeyType) -> list[Any] | None:
    """Return the literals of a list in the form that bounds compare, sorted; None if bounds do not cover their type.

    The result is cached, as each list is tested against every row group.
    """
    values = [_parse_bound(text, key_type) for text in texts if text is not None]
    return None if None in values else sorted(values)


def _may_compare(op: str, column: Expression, literal: Expression, bounds: Callable[[int], ColumnBounds]) -> bool:
    if literal.text is None:
        return False  # nothing compares with null
    assert literal.type is not None, "literals have a type"
    value = _parse_bound(literal.text, literal.type)
    column_bounds = bounds(column.column)
    if value is None:
        return True
    above = column_bounds.low is not None and _is_less(value, column_bounds.low)  # all values are above the literal
    below = column_bounds.high is not None and _is_less(column_bounds.high, value)
    if op == "=":
        return not (above or below)
    if op in ("<", "<="):
        return not (above or (op == "<" and column_bounds.low == value))
    return not (below or (op == ">" and column_bounds.high == value))


def _is_less(left: Any, right: Any) -> bool:
    return bool(left < right)


def _parse_bound(text: str, key_type: KeyType) -> BoundValue | None:
    """Return a literal in the form that bounds compare; None for types that bounds do not cover."""
    if key_type.name in ("int8", "int16", "int32", "int64", "date", "timestamp", "timestamp_ntz"):
        return int(text)
    if key_type.name == "decimal":
        return Decimal(text)
    return text.encode() if key_type.name == "string" else None


def may_meet(bounds: ColumnBounds, keys: tuple[int, int] | None) -> bool:
    """Return whether a probe key within `bounds` may find a match among build keys from `keys[0]` to `keys[1]`.

    `keys` is None for a build side without any key.
    """
    if keys is None:
        return False
    if not isinstance(bounds.low, int) or not isinstance(bounds.high, int):
        return True
    return bounds.low <= keys[1] and bounds.high >= keys[0]


def divide_row_groups(groups: Sequence[tuple[int, int]], most_rows: int, most_bytes: int) -> list[tuple[int, int]]:
    """Divide row groups (rows, bytes) into runs [first, last) within both limits. A larger row group is a run alone."""
    runs: list[tuple[int, int]] = []
    first = rows = size = 0
    for number, (more_rows, more_bytes) in enumerate(groups):
        if number > first and (rows + more_rows > most_rows or size + more_bytes > most_bytes):
            runs.append((first, number))
            first, rows, size = number, 0, 0
        rows += more_rows
        size += more_bytes
    if first < len(groups):
        runs.append((first, len(groups)))
    return runs
