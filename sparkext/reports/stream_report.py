"""The report of the last batches of a streaming query, from Spark's progress updates."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sparkext.reports import stream_chart
from sparkext.reports.stream_batches import PREFIX, Batch, JoinedBatch, OrderedBatch
from sparkext.wording import format_bytes, format_count, format_table


@dataclass(frozen=True, repr=False)
class StreamReport:
    """The last batches of a query; `spark.sql.streaming.numRecentProgressUpdates` limits their number.

    Printed, it is a table. A notebook shows it with charts of the time and the state of each batch.
    """

    batches: tuple[Batch, ...]

    @property
    def operators(self) -> list[str]:
        """The names of the operators."""
        return list(dict.fromkeys(name for batch in self.batches for name in batch.operators))

    def of(self, operator: str) -> list[Any]:
        """Return the batches of an operator: `JoinedBatch` or `OrderedBatch`."""
        return [batch.operators[operator] for batch in self.batches if operator in batch.operators]

    def __repr__(self) -> str:
        """Return the same as `str`."""
        return str(self)

    def __str__(self) -> str:
        """Return a table for each type of operator, and a line about the batches."""
        batches_by_operator = {name: self.of(name) for name in self.operators}
        lines: list[str] = []
        for kind, header in _HEADERS.items():
            rows = [
                _format_batch_cells(name, batches)
                for name, batches in batches_by_operator.items()
                if isinstance(batches[0], kind)
            ]
            lines += [format_table(header, rows, range(len(header)))] if rows else []
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """The range of batches, their median time, and the time and watermark of the last batch."""
        seconds = [batch.seconds for batch in self.batches]
        last = self.batches[-1]
        text = f"batches {self.batches[0].number} to {last.number}: {statistics.median(seconds):.2f} s each (median),"
        text += f" the last {last.seconds:.2f} s"
        return text if last.watermark is None else f"{text}; watermark {last.watermark}"

    def _repr_html_(self) -> str:
        """Return the tables with a chart of each operator."""
        return stream_chart.render_stream_html(str(self), self.operators, self.batches)


def read_stream_report(progress: Iterable[Any]) -> StreamReport:
    """Read PySpark's progress updates, without updates that have no metrics of this package's operators."""
    batches = []
    for update in progress:
        figures = {
            name.removeprefix(PREFIX): _parse_figures(row.asDict())
            for name, row in update.observedMetrics.items()
            if name.startswith(PREFIX)
        }
        operators = {name: batch for name, batch in figures.items() if batch is not None}
        if operators:
            seconds = update.durationMs["triggerExecution"] / 1000
            batches.append(Batch(update.batchId, seconds, update.eventTime.get("watermark"), operators))
    return StreamReport(tuple(batches))


def _parse_figures(row: Mapping[str, Any]) -> JoinedBatch | OrderedBatch | None:
    """Return the figures of an operator, None if its metrics are null or have other names."""
    for kind in _HEADERS:
        names = [field.name for field in fields(kind)]
        if names == [*row] and None not in row.values():
            return kind(**{name: int(row[name]) for name in names})
    return None


_HEADERS: Mapping[type[JoinedBatch | OrderedBatch], tuple[str, ...]] = {
    JoinedBatch: ("join", "left rows", "right rows", "matches", "state", "segments", "units"),
    OrderedBatch: ("ordered", "rows", "late", "out", "merged", "moved", "tables", "state", "segments"),
}
_SUMS: Mapping[type[JoinedBatch | OrderedBatch], tuple[str, ...]] = {
    JoinedBatch: ("left_rows", "right_rows", "matches"),
    OrderedBatch: ("rows", "late_rows", "rows_out", "merged_rows", "moved_rows", "tables"),
}


def _format_batch_cells(name: str, batches: Sequence[JoinedBatch | OrderedBatch]) -> tuple[str, ...]:
    last = batches[-1]
    sums = [sum(getattr(batch, field) for batch in batches) for field in _SUMS[type(last)]]
    state = f"{format_count(last.state_rows, 'row')}, {format_bytes(last.state_bytes)}"
    units = [f"{last.units:,}"] if isinstance(last, JoinedBatch) else []
    return (name, *(f"{rows:,}" for rows in sums), state, f"{last.segments:,}", *units)
