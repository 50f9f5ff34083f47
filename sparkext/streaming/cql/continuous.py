"""`cql`: continuous queries over streams, recursive ones included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, overload

from sparkext.errors import InvalidQueryError
from sparkext.joins.calls import Transform, check_signature
from sparkext.joins.durations import Duration
from sparkext.streaming.cql.frame import QueryCall
from sparkext.streaming.cql.language.binder import bind
from sparkext.streaming.cql.language.drawing import Drawing, draw_graph
from sparkext.streaming.cql.language.graph import Graph, build_graph, spell_cycle
from sparkext.streaming.cql.language.parser import parse
from sparkext.streaming.cql.language.partitioning import GraphPartitioning, PartitioningObstacle, find_partitioning
from sparkext.streaming.cql.language.problems import CqlProblems
from sparkext.streaming.cql.language.queries import RelationColumn, spell_delay
from sparkext.streaming.cql.language.types import spell_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@check_signature("cql(text)", InvalidQueryError)
def cql(text: str, *, missing_delay: str = "error", partition_by: Mapping[str, str] | None = None) -> ContinuousQueries:
    """Register continuous queries, which may read each other in cycles if each cycle has a delay.

        q = cql(\"\"\"
            REGISTER STREAM readings (device string, level double);
            REGISTER QUERY recent SELECT device, avg(level) AS level FROM readings [Range 1 minute] GROUP BY device;
            REGISTER QUERY alerts ISTREAM(SELECT * FROM recent WHERE level > 0.9);
        \"\"\")
        alerts = q.output("alerts", readings=readings, time="ts", watermark="10 seconds")

    Parameters
    ----------
    text:
        CQL statements separated by `;`: REGISTER STREAM and REGISTER QUERY.
    missing_delay:
        How to treat a cycle without a delay: `error`, or `insert`, which makes a query on the cycle emit an ε later.
    partition_by:
        For each stream, the column by which its rows can be partitioned and processed independently. By default these
        columns are derived from the queries. If there are no such columns, one task processes all rows.

    Raises
    ------
    InvalidQueryError
        Lists every problem, with its position in the text.
    """
    if missing_delay not in ("error", "insert"):
        raise InvalidQueryError([f"missing_delay={missing_delay!r}: expected 'error' or 'insert'"])
    if not isinstance(text, str):
        raise InvalidQueryError([f"text must be a str, got {type(text).__name__}"])
    try:
        graph = build_graph(bind(parse(text)), missing_delay)
    except CqlProblems as problems:
        raise InvalidQueryError(problems.problems) from None
    return ContinuousQueries(graph, None if partition_by is None else _resolve_key_columns(graph, partition_by))


def _resolve_key_columns(graph: Graph, key_columns: Mapping[str, str]) -> dict[str, int]:
    """Return the positions of the columns named in `partition_by`, checked against the graph."""
    problems, positions = [], {}
    streams = {name.lower(): name for name in graph.streams}
    for name, column in key_columns.items():
        if name.lower() not in streams:
            problems.append(
                f"partition_by names {name}, which is not a registered stream. Streams: {', '.join(graph.streams)}"
            )
            continue
        columns = [registered.name.lower() for registered in graph.streams[streams[name.lower()]].registered]
        if column.lower() not in columns:
            problems.append(f"partition_by names {column}, but {name} has the columns {', '.join(columns)}")
            continue
        positions[streams[name.lower()]] = columns.index(column.lower())
    problems += [f"partition_by does not name a column of {name}" for name in graph.streams if name not in positions]
    if not problems:
        partitioning = find_partitioning(graph, positions)
        if isinstance(partitioning, PartitioningObstacle):
            problems.append(
                f"rows cannot be partitioned by these columns, because of {partitioning.query}: {partitioning.reason}"
            )
    if problems:
        raise InvalidQueryError(problems)
    return positions


class ContinuousQueries:
    """Registered queries, as returned by `cql`."""

    def __init__(self, graph: Graph, key_columns: Mapping[str, int] | None) -> None:
        self._graph, self._key_columns = graph, key_columns

    def __repr__(self) -> str:
        """Return the same as `describe`."""
        return self.describe()

    def describe(self) -> str:
        """Return a text on all streams and queries: columns, delays, monotonicity, order, cycles, partitioning key."""
        graph = self._graph
        lines = []
        for name, stream in graph.streams.items():
            lines.append(f"stream    {name} ({_spell_columns(stream.registered)})")
            computed = [column.name for column in stream.computed]
            lines += [f"computed  {', '.join(computed)} of {name}"] * bool(computed)
        for name in graph.order:
            query = graph.queries[name]
            label = "relation" if query.operator is None else query.operator
            properties = [] if graph.is_monotone(name) else ["not monotone"]
            if query.delay is not None:
                inserted = ", inserted" if name in graph.inserted else ""
                properties.append(f"delayed by {spell_delay(query.delay)}{inserted}")
            lines.append(
                f"{label:<9} {name} ({_spell_columns(query.columns)}){''.join(f', {text}' for text in properties)}"
            )
        lines.append(f"order     {' ▶ '.join(graph.order)}")
        lines += [f"cycle     {spell_cycle(part)}" for part in graph.components]
        partitioning = find_partitioning(graph, self._key_columns)
        if isinstance(partitioning, GraphPartitioning):
            keys = [
                f"{name}.{graph.streams[name].columns[partitioning.columns[name] or 0].name}" for name in graph.streams
            ]
            lines.append(f"key       {' = '.join(keys)}")
        else:
            lines.append(f"key       none, because of {partitioning.query}: {partitioning.reason}")
        return "\n".join(lines)

    def graph(self) -> Drawing:
        """Draw the graph of queries. Notebooks show the drawing; its method `save` writes it to a file."""
        return draw_graph(self._graph)

    @overload
    def output(
        self,
        query: str,
        *,
        time: str,
        watermark: Duration | None = None,
        ties: str | None = None,
        serial: bool = False,
        until: datetime | None = None,
        name: str | None = None,
    ) -> Transform: ...

    @overload
    def output(
        self,
        query: str,
        *,
        time: str,
        watermark: Duration | None = None,
        ties: str | None = None,
        serial: bool = False,
        until: datetime | None = None,
        name: str | None = None,
        **streams: DataFrame,
    ) -> DataFrame: ...

    def output(
        self,
        query: str,
        *,
        time: str,
        watermark: Duration | None = None,
        ties: str | None = None,
        serial: bool = False,
        until: datetime | None = None,
        name: str | None = None,
        **streams: DataFrame,
    ) -> DataFrame | Transform:
        """Return the rows that a query emits, with the time of emission as the last column.

        Parameters
        ----------
        query:
            A query with ISTREAM, DSTREAM or RSTREAM.
        time:
            The name of the event-time column, a timestamp, in all streams and in the result.
        watermark:
            How late rows may arrive, as in `DataFrame.withWatermark`: a text such as `10 seconds` or a timedelta.
            Required for streaming DataFrames without a watermark.
        ties:
            A column of all streams that orders rows of equal time. By default their content orders them.
        serial:
            Whether rows of equal time are processed one after the other, each after all effects of the row before. By
            default they are processed at once, and no row sees the changes of another.
        until:
            The end of time for DataFrames that are no streams. By default they end when nothing happens any more.
        name:
            The name of the state in the checkpoint.
        streams:
            The DataFrame of each registered stream, by the name of the stream, with the registered columns. Without any
            of them, if the query needs only one, the call returns a function for `DataFrame.transform`:
            `readings.transform(q.output("alerts", time="ts"))`.

        Raises
        ------
        InvalidQueryError
            Lists every problem of the call.
        """
        call = QueryCall(self._graph, (query,), False, self._key_columns, time, watermark, ties, serial, until, name)
        return call.resolve(streams)

    @overload
    def outputs(
        self,
        *queries: str,
        time: str,
        watermark: Duration | None = None,
        ties: str | None = None,
        serial: bool = False,
        until: datetime | None = None,
        name: str | None = None,
    ) -> Transform: ...

    @overload
    def outputs(
        self,
        *queries: str,
        time: str,
        watermark: Duration | None = None,
        ties: str | None = None,
        serial: bool = False,
        until: datetime | None = None,
        name: str | None = None,
        **streams: DataFrame,
    ) -> DataFrame: ...

    def outputs(
        self,
        *queries: str,
        time: str,
        watermark: Duration | None = None,
        ties: str | None = None,
        serial: bool = False,
        until: datetime | None = None,
        name: str | None = None,
        **streams: DataFrame,
    ) -> DataFrame | Transform:
        """Return the rows of several queries as one DataFrame: columns `query` and the time, and a struct per query.

        In each row all structs but one are null. See `output` for the arguments.
        """
        call = QueryCall(self._graph, queries, True, self._key_columns, time, watermark, ties, serial, until, name)
        return call.resolve(streams)


def _spell_columns(columns: Sequence[RelationColumn]) -> str:
    texts = (f"{column.name} {spell_type(column.type)}{'' if column.nullable else ' not null'}" for column in columns)
    return ", ".join(texts)
