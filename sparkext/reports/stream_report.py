"""What the joins of a streaming query have done, batch by batch, as its progress tells."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from sparkext.reports.text import table
from sparkext.wording import size

PREFIX = "sparkext."
"""Of the observed metrics of joins; then comes the join's name."""


@dataclass(frozen=True)
class JoinedBatch:
    """One batch of one join: rows that came, and were not late; rows that came out; and what is kept behind it."""

    left_rows: int
    right_rows: int
    matches: int
    state_rows: int
    state_bytes: int
    segments: int
    units: int


@dataclass(frozen=True)
class Batch:
    """One batch of a query. `joins` by their names; `watermark` as Spark writes it, None without one."""

    number: int
    seconds: float
    watermark: str | None
    joins: Mapping[str, JoinedBatch]


@dataclass(frozen=True, repr=False)
class StreamReport:
    """The last batches of a query, as many as Spark keeps (`spark.sql.streaming.numRecentProgressUpdates`).

    Printed it is a table; a notebook shows it with the time and the state of each batch.
    """

    batches: tuple[Batch, ...]

    @property
    def joins(self) -> list[str]:
        """The names of the joins."""
        return list(dict.fromkeys(name for batch in self.batches for name in batch.joins))

    def of(self, join: str) -> list[JoinedBatch]:
        """Return the batches of a join."""
        return [batch.joins[join] for batch in self.batches if join in batch.joins]

    def __repr__(self) -> str:
        """Return the same as `str`."""
        return str(self)

    def __str__(self) -> str:
        """Return a table of the joins, and a line on the batches."""
        rows = [_HEADER, *(_cells(name, self.of(name)) for name in self.joins)]
        return "\n".join([*table(rows, range(len(_HEADER))), self.summary])

    @property
    def summary(self) -> str:
        """How many batches there were, what they took, and up to when they are known to be whole."""
        seconds = [batch.seconds for batch in self.batches]
        last = self.batches[-1]
        told = f"batches {self.batches[0].number} to {last.number}: {statistics.median(seconds):.2f} s each (median),"
        told += f" the last {last.seconds:.2f} s"
        return told if last.watermark is None else f"{told}; watermark {last.watermark}"

    def _repr_html_(self) -> str:
        """Return the table with a chart of each join."""
        from sparkext.reports.stream_chart import laid_out

        return laid_out(self)


def stream_report(progress: Iterable[Any]) -> StreamReport:
    """Read progress updates as PySpark gives them. Those of no batch, and of queries without joins, are left out."""
    names = [field.name for field in fields(JoinedBatch)]
    batches = []
    for update in progress:
        joins = {}
        for name, row in update.observedMetrics.items():
            told = row.asDict() if name.startswith(PREFIX) else {}
            if set(names) <= told.keys() and told["units"] is not None:
                joins[name.removeprefix(PREFIX)] = JoinedBatch(*(int(told[field]) for field in names))
        if joins:
            seconds = update.durationMs["triggerExecution"] / 1000
            batches.append(Batch(update.batchId, seconds, update.eventTime.get("watermark"), joins))
    return StreamReport(tuple(batches))


_HEADER = ("join", "left rows", "right rows", "matches", "state", "segments", "units")


def _cells(name: str, batches: list[JoinedBatch]) -> tuple[str, ...]:
    last = batches[-1]
    came = [sum(getattr(batch, field) for batch in batches) for field in ("left_rows", "right_rows", "matches")]
    state = f"{last.state_rows:,} rows, {size(last.state_bytes)}"
    return (name, *(f"{rows:,}" for rows in came), state, f"{last.segments:,}", f"{last.units:,}")
