"""The figures of each batch of a streaming query, as operators observe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "sparkext."
"""Of the observed metrics of operators; then comes the operator's name."""


def metrics_name(name: str, is_named: bool, token: str) -> str:
    """Return what the observed metrics of an operator are called: with its token, where users have not named it."""
    return f"{PREFIX}{name}" if is_named else f"{PREFIX}{name}.{token[:8]}"


@dataclass(frozen=True)
class JoinedBatch:
    """One batch of one join: rows received in time, rows emitted, and the state after it."""

    left_rows: int
    right_rows: int
    matches: int
    state_rows: int
    state_bytes: int
    segments: int
    units: int


@dataclass(frozen=True)
class OrderedBatch:
    """One batch of one `ordered`: rows received, and late rows, of these or in addition to them; rows emitted, and
    merged ones among them; rows of keys that another slot has now; the state after it, and the number of new tables.
    """

    rows: int
    late_rows: int
    rows_out: int
    merged_rows: int
    moved_rows: int
    state_rows: int
    state_bytes: int
    segments: int
    tables: int


@dataclass(frozen=True)
class Batch:
    """One batch of a query. `operators` by their names; `watermark` as Spark writes it, None without one."""

    number: int
    seconds: float
    watermark: str | None
    operators: Mapping[str, JoinedBatch | OrderedBatch]
