"""The figures of each batch of a streaming query, from the observed metrics of its operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "sparkext."
"""Prefix of the names of observed metrics, followed by the operator's name."""


def build_metrics_name(name: str, is_named: bool, token: str) -> str:
    """Return the name of an operator's observed metrics, with its token unless the user has named the operator."""
    return f"{PREFIX}{name}" if is_named else f"{PREFIX}{name}.{token[:8]}"


@dataclass(frozen=True)
class JoinedBatch:
    """One batch of one stream join: received rows that were not late, emitted rows, and the state after the batch."""

    left_rows: int
    right_rows: int
    matches: int
    state_rows: int
    state_bytes: int
    segments: int
    units: int


@dataclass(frozen=True)
class OrderedBatch:
    """One batch of one `ordered`.

    `rows` are the received rows that were not late, `late_rows` the late rows. `rows_out` are the emitted rows,
    `merged_rows` the rows among them that were merged because their order key is split. `moved_rows` are waiting rows
    whose keys have been assigned to another partition. `state_rows`, `state_bytes` and `segments` are the state after
    the batch. `tables` is 1 if the next batch assigns keys to partitions by a new table, otherwise 0.
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
    """One batch of a query. `operators` has figures by operator name; `watermark` is Spark's text, None without one."""

    number: int
    seconds: float
    watermark: str | None
    operators: Mapping[str, JoinedBatch | OrderedBatch]
