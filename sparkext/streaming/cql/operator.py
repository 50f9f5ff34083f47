"""The operator that runs a graph of queries on rows of all its streams. Each row has the index of its stream."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa

from sparkext.errors import QueryStateError
from sparkext.kernels.runtime.jit import freeze
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.times import convert_to_microseconds
from sparkext.rows.types import arrow_key_type
from sparkext.streaming.cql.code.engine import Engine, InputRows, OutputRows, StateFullError, StepsExceededError
from sparkext.streaming.cql.code.module_text import GeneratedModule
from sparkext.streaming.cql.language.graph import Graph, spell_cycle

_AT_ONCE = 1 << 20
"""Rows processed at a time (they are converted to 64-bit words)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class CqlOperator:
    """The function of a `TimedOperator` that runs a graph of queries.

    The columns of the rows are the time, the index of a stream of the graph, and columns shared by all streams:
    `places[stream]` are the shared columns of a stream.

    `tagged`: the result columns are the query name, the time, and one struct per output; otherwise the columns of the
    only output, and the time.
    """

    graph: Graph
    places: Mapping[str, tuple[int, ...]]
    code: GeneratedModule
    outputs: tuple[str, ...]
    tagged: bool
    schema: pa.Schema
    most_instants: int

    def __call__(
        self, rows: pa.Table, state: bytes | None, until: int, max_bytes: int
    ) -> Generator[pa.Table, None, bytes | None]:
        """Run the graph on some rows; see `TimedOperator`."""
        limit = self.most_instants
        engine = Engine(self.graph, self.code, words=max_bytes // 8, limit=limit, state=state)
        times = freeze(convert_to_microseconds(make_contiguous(rows.column(0))))
        streams = np.asarray(make_contiguous(rows.column(1)), dtype=np.int8)
        start = 0
        try:
            while start < times.size:
                # Rows of the same instant are not split.
                last = times[min(start + _AT_ONCE, times.size) - 1]
                stop = int(np.searchsorted(times, last, side="right"))
                input_rows = self._select_input(rows.slice(start, stop - start), times[start:stop], streams[start:stop])
                for emitted in engine.run(input_rows, int(last)):
                    yield self._create_table(emitted)
                start = stop
            for emitted in engine.run(self._select_input(rows.slice(0, 0), times[:0], streams[:0]), until):
                yield self._create_table(emitted)
        except StepsExceededError as error:
            raise QueryStateError(_describe_endless_cycle(self, error)) from None
        except StateFullError as error:
            raise QueryStateError(_describe_full_state(self, error)) from None
        return engine.state() if engine.has_run else None

    def _select_input(self, rows: pa.Table, times: np.ndarray, streams: np.ndarray) -> InputRows:
        shared: dict[int, pa.Array] = {}
        for name, stream in self.graph.streams.items():
            for position, column in zip(self.places[name], stream.columns, strict=True):
                if position not in shared:
                    shared[position] = make_contiguous(rows.column(2 + position)).cast(arrow_key_type(column.type))
        columns = {name: [shared[position] for position in self.places[name]] for name in self.graph.streams}
        return InputRows(freeze(times), freeze(streams), columns)

    def _create_table(self, emitted: OutputRows) -> pa.Table:
        time = pa.array(emitted.times, pa.int64())
        if not self.tagged:
            columns = [*emitted.columns, time.cast(self.schema.types[-1])]
            return pa.Table.from_arrays(
                [column.cast(kind) for column, kind in zip(columns, self.schema.types, strict=True)], schema=self.schema
            )
        rows = len(time)
        columns = [pa.array([emitted.query] * rows, pa.string()), time.cast(self.schema.types[1])]
        for name, kind in zip(self.outputs, self.schema.types[2:], strict=True):
            if name == emitted.query:
                fields = [kind.field(k) for k in range(kind.num_fields)]
                values = [column.cast(field.type) for column, field in zip(emitted.columns, fields, strict=True)]
                columns.append(pa.StructArray.from_arrays(values, fields=fields))
            else:
                columns.append(pa.nulls(rows, kind))
        return pa.Table.from_arrays(columns, schema=self.schema)


def _describe_endless_cycle(operator: CqlOperator, error: StepsExceededError) -> str:
    cycles = [
        spell_cycle(part)
        for part in operator.graph.components
        if any(operator.graph.queries[name].delay == 0 or operator.graph.queries[name].recursive for name in part)
    ]
    return (
        f"{' and '.join(cycles)} still changes after {error.limit} instants or rounds at"
        f" {_EPOCH + timedelta(microseconds=error.time)}: add a longer delay, or raise spark.sparkext.cql.maxInstants"
    )


def _describe_full_state(operator: CqlOperator, error: StateFullError) -> str:
    windows = {
        f"{read.window.spelled(read.columns)} of {read.name} in {query.name}"
        for query in operator.graph.queries.values()
        for select in query.selects()
        for read in select.inputs
        if read.window is not None and read.window.kind != "now"
    }
    return (
        f"the state of {', '.join(operator.outputs)} exceeds {error.bytes >> 20} MiB, this task's share of memory. It"
        f" is held by {', '.join(sorted(windows))}: use smaller windows, or give executors more memory"
    )
