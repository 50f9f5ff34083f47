"""The DataFrame of continuous queries: the union of all streams, ordered by time and processed by the query graph."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from sparkext.errors import InvalidQueryError
from sparkext.joins.arguments import check_column_name, check_flag, resolve_ties
from sparkext.joins.calls import Transform
from sparkext.joins.columns import resolve_column
from sparkext.joins.durations import read_duration
from sparkext.plans.expressions.number_types import INTEGERS
from sparkext.rows.types import arrow_key_type, spark_key_type
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.frames import quote_name
from sparkext.spark.session_settings import is_case_sensitive, settings_of
from sparkext.streaming.arguments import check_name, check_timestamp, resolve_order_session
from sparkext.streaming.cql.code.engine import FOR_EVER
from sparkext.streaming.cql.code.module_text import generate_module
from sparkext.streaming.cql.code.shared_columns import SharedColumns
from sparkext.streaming.cql.computed_columns import create_spark_column
from sparkext.streaming.cql.language.graph import Graph
from sparkext.streaming.cql.language.partitioning import GraphPartitioning, find_partitioning
from sparkext.streaming.cql.language.queries import BoundStream, RelationColumn
from sparkext.streaming.cql.language.types import spell_type, unify_types
from sparkext.streaming.cql.operator import CqlOperator
from sparkext.streaming.ordered.description_of import AppliedOperator, OrderColumns
from sparkext.streaming.ordered.frame import create_order_frame
from sparkext.streaming.ordered.timed_operator import TimedOperator
from sparkext.streaming.watermarks import is_marked

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

KEYS = 32
"""Number of parts into which rows are divided by the hash of their key. Each part has its own state."""


@dataclass(frozen=True)
class QueryCall:
    """The arguments of `ContinuousQueries.output` and `outputs` except the DataFrames, unchecked."""

    graph: Graph
    queries: tuple[str, ...]
    tagged: bool
    partition_by: Mapping[str, int] | None
    time: Any
    watermark: Any
    ties: Any
    serial: Any
    until: Any
    name: Any

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Return the rows that the queries emit for the only stream that they need."""
        [stream] = self.needed_streams()
        return create_query_frame(self, {stream: frame})

    def needed_streams(self) -> tuple[str, ...]:
        """Return the names of the streams that the queries need, none if the names of queries are invalid."""
        problems: list[str] = []
        queries = _resolve_queries(self, problems)
        return () if problems else tuple(self.graph.needed(queries).streams)

    def resolve(self, streams: Mapping[str, DataFrame]) -> DataFrame | Transform:
        """Return the rows that the queries emit. Without `streams`, if they need one, return a transform of it."""
        if not streams and len(self.needed_streams()) == 1:
            return self
        return create_query_frame(self, streams)


def create_query_frame(call: QueryCall, streams: Mapping[str, Any]) -> DataFrame:
    """Return the rows that queries emit.

    Raises
    ------
    InvalidQueryError
        Lists every problem of the call.
    """
    problems: list[str] = []
    queries = _resolve_queries(call, problems)
    graph = call.graph.needed(queries)
    frames = _resolve_frames(graph, call.graph, streams, queries, problems)
    check_name(call.name, problems)
    check_column_name("time", call.time, problems)
    if call.ties is not None:
        check_column_name("ties", call.ties, problems)
    delay = None if call.watermark is None else read_duration("watermark", call.watermark, problems)
    check_flag("serial", call.serial, problems)
    if problems:
        raise InvalidQueryError(problems)
    session = next(iter(frames.values())).sparkSession
    settings = settings_of(session)
    sources = {name: _Source(frame, graph.streams[name], call, delay, problems) for name, frame in frames.items()}
    if len({frame.isStreaming for frame in frames.values()}) > 1:
        types = [f"{name} is a {'stream' if frame.isStreaming else 'table'}" for name, frame in frames.items()]
        problems.append(f"{', '.join(types)}: use only streams, or only tables")
    _check_alike("time", {name: source.time for name, source in sources.items()}, problems)
    if call.ties is not None:
        _check_alike("ties", {name: source.ties for name, source in sources.items()}, problems)
    schema, time = _derive_schema(call, graph, queries, sources, problems)
    until = _resolve_end(call, graph, frames, session, problems)
    if problems:
        raise InvalidQueryError(problems)
    partitioning = find_partitioning(graph, _select_key_columns(call, graph))
    keys = KEYS if isinstance(partitioning, GraphPartitioning) else 1
    shared = SharedColumns({name: [*map(_spark_type, stream.columns)] for name, stream in graph.streams.items()})
    parts = []
    for number, name in enumerate(graph.streams):
        key = partitioning.columns[name] if isinstance(partitioning, GraphPartitioning) else None
        parts.append(sources[name].tagged(number, shared, key, keys))
    frame = reduce(lambda left, right: left.unionAll(right), parts)
    width = len(frame.columns)
    key_column = width - (1 if call.ties is None else 2)
    columns = OrderColumns(frame, width, 0, (key_column,), (key_column,), None if call.ties is None else width - 1)
    code, limit = generate_module(graph, queries, serial=call.serial), settings.cql_max_instants
    operator = CqlOperator(graph, shared.places, code, queries, call.tagged, arrow_schema(schema), limit)
    text = code.text.partition("\n")[2]  # without the first line, the fingerprint of the kernels
    text += "".join(
        f"{stream.name}: {column.name}\n" for stream in graph.streams.values() for column in stream.computed
    )
    made_by = f"{schema.simpleString()}, queries {hashlib.sha256(text.encode()).hexdigest()}, of {keys}"
    apply = AppliedOperator(TimedOperator(operator, keys, until), schema, time, made_by)
    return create_order_frame(columns, apply, settings, split=False, late=None, name=call.name)


def _resolve_queries(call: QueryCall, problems: list[str]) -> tuple[str, ...]:
    """Return the names of the requested queries, spelled as registered."""
    names = {name.lower(): name for name in call.graph.queries}
    queries: list[str] = []
    if not call.queries:
        problems.append("outputs: expected the names of one or more queries")
    for name in call.queries:
        query = names.get(name.lower()) if isinstance(name, str) else None
        if query is None:
            problems.append(
                f"there is no query {name!r}. Registered queries: {', '.join(call.graph.queries) or 'none'}"
            )
        elif call.graph.queries[query].operator is None:
            problems.append(f"{query} is a relation, which is not emitted: use ISTREAM, DSTREAM or RSTREAM")
        elif query in queries:
            problems.append(f"{query} is named twice")
        else:
            queries.append(query)
    return tuple(queries)


def _resolve_frames(
    graph: Graph, full_graph: Graph, streams: Mapping[str, Any], queries: tuple[str, ...], problems: list[str]
) -> dict[str, DataFrame]:
    """Return the DataFrames of the streams of `graph`, in their order."""
    frames_by_name = {name.lower(): frame for name, frame in streams.items()}
    stream_names = {name.lower() for name in full_graph.streams}
    problems += [
        f"{name}=…: there is no stream {name}. Registered streams: {', '.join(full_graph.streams)}"
        for name in streams
        if name.lower() not in stream_names
    ]
    frames: dict[str, DataFrame] = {}
    for name in graph.streams:
        if name.lower() not in frames_by_name:
            problems.append(f"{', '.join(queries)} needs the DataFrame of the stream {name}: pass {name}=…")
        elif resolve_order_session(frames_by_name[name.lower()], problems) is not None:
            frames[name] = frames_by_name[name.lower()]
    return frames


class _Source:
    """The DataFrame of one stream."""

    def __init__(
        self, frame: DataFrame, stream: BoundStream, call: QueryCall, delay: int | None, problems: list[str]
    ) -> None:
        name, registered = stream.name, stream.registered
        self._name, self.columns = name, stream.columns
        case_sensitive = is_case_sensitive(frame.sparkSession)
        fields = frame.schema.fields

        def find_column(column: str) -> int | None:
            return resolve_column(column, fields, f"{name}'s", case_sensitive, problems)

        time = find_column(call.time)
        self.time = None if time is None else fields[time]
        self._time = None if time is None else frame.columns[time]
        is_timestamp = self.time is not None and check_timestamp(f"{call.time} of {name}", self.time, problems)
        if self.time is not None and is_timestamp and frame.isStreaming and not is_marked(self.time):
            if delay is None:
                problems.append(f"{call.time} of {name} has no watermark: pass watermark=…, the maximum delay of rows")
            else:
                frame = frame.withWatermark(quote_name(self.time.name), f"{delay} microseconds")
        ties = resolve_ties(call.ties, fields, f"{name}'s", case_sensitive, problems)
        self.ties = None if ties is None else fields[ties]
        self._fields = [
            None if (position := find_column(column.name)) is None else fields[position] for column in registered
        ]
        for column, field in zip(registered, self._fields, strict=True):
            if field is not None and not _fits(field, column):
                problems.append(
                    f"column {column.name} of {name} has type {field.dataType.simpleString()}, but is registered as"
                    f" {spell_type(column.type)}"
                )
        self._frame = frame

    def tagged(self, number: int, shared: SharedColumns[DataType], key: int | None, keys: int) -> DataFrame:
        """Return the rows with time, index of the stream, columns shared by all streams, part, and ties if given."""
        from pyspark.sql import functions as F

        assert self.time is not None and self._time is not None, "it has been checked"
        time = F.col(quote_name(self._time))
        missing = F.raise_error(F.lit(f"{self._time} is null in a row of {self._name}: filter out such rows")).cast(
            "int"
        )
        stream = F.when(time.isNull(), missing).otherwise(F.lit(number)).cast("tinyint")
        columns = [time.alias("time"), stream.alias("stream")]
        values = [F.lit(None).cast(kind) for kind in shared.kinds]
        for position, shared_column in enumerate(shared.places[self._name]):
            values[shared_column] = self._value(position)
        columns += [value.alias(f"c{shared_column}") for shared_column, value in enumerate(values)]
        part = F.lit(0)
        if key is not None:
            part = F.pmod(F.xxhash64(self._value(key)), F.lit(keys)).cast("int")
        columns.append(part.alias("part"))
        if self.ties is not None:
            columns.append(F.col(quote_name(self.ties.name)).alias("ties"))
        return self._frame.select(*columns)

    def _value(self, position: int) -> SparkColumn:
        """Return a column in its registered type, or computed from registered columns."""
        from pyspark.sql import functions as F

        column = self.columns[position]
        kind = _spark_type(column)
        if column.computed is not None:
            names = [other.name for other in self.columns]
            return create_spark_column(column.computed, lambda name: self._value(names.index(name))).cast(kind)
        field = self._fields[position]
        assert field is not None, "it has been checked"
        value = F.col(quote_name(field.name)).cast(kind)
        if column.nullable or not field.nullable:
            return value
        message = f"{column.name} is null in a row of {self._name}, but registered as NOT NULL"
        return F.when(value.isNull(), F.raise_error(F.lit(message)).cast(kind)).otherwise(value)


def _fits(field: StructField, column: RelationColumn) -> bool:
    """Return whether the type of a registered column represents all values of a field exactly."""
    kind = spark_key_type(field)
    if kind is None or kind == column.type:
        return kind is not None
    wider = unify_types(kind, column.type)
    return wider == column.type and (kind.name not in INTEGERS or column.type.name in INTEGERS)


def _spark_type(column: RelationColumn) -> DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(arrow_key_type(column.type), prefer_timestamp_ntz=True)


def _check_alike(argument: str, fields: Mapping[str, StructField | None], problems: list[str]) -> None:
    kinds = {name: field.dataType.simpleString() for name, field in fields.items() if field is not None}
    if len({*kinds.values()}) > 1:
        description = ", ".join(f"{kind} in {name}" for name, kind in kinds.items())
        problems.append(f"the columns of {argument} have different types ({description}): cast them to one type")


def _derive_schema(
    call: QueryCall, graph: Graph, queries: tuple[str, ...], sources: Mapping[str, _Source], problems: list[str]
) -> tuple[StructType, int]:
    """Return the columns of the result, and the position of the time among them."""
    from pyspark.sql.types import StringType, StructField, StructType

    kinds = [source.time.dataType for source in sources.values() if source.time is not None]
    if not kinds:
        return StructType([]), 0
    time = StructField(call.time, kinds[0], False)

    def fields(query: str) -> list[StructField]:
        return [
            StructField(column.name, _spark_type(column), column.nullable) for column in graph.queries[query].columns
        ]

    if not call.tagged:
        result_fields, time_position = [*fields(queries[0]), time], len(graph.queries[queries[0]].columns)
    else:
        structs = [StructField(query, StructType(fields(query)), True) for query in queries]
        result_fields, time_position = [StructField("query", StringType(), False), time, *structs], 1
    names = [field.name.lower() for field in result_fields]
    duplicate = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if duplicate is not None:
        problems.append(
            f"two columns of the result are named {duplicate}, and the time is named {call.time}: rename a column"
        )
    return StructType(result_fields), time_position


def _resolve_end(
    call: QueryCall, graph: Graph, frames: Mapping[str, DataFrame], session: SparkSession, problems: list[str]
) -> int:
    """Return the end of time in µs for DataFrames that are no streams, `FOR_EVER` if there is none."""
    from pyspark.sql import functions as F

    is_stream = any(frame.isStreaming for frame in frames.values())
    if call.until is None:
        if graph.may_go_on and not is_stream:
            problems.append(
                f"queries may emit rows for ever: {', '.join(graph.may_go_on)}. Pass until=…, the end of time"
            )
        return FOR_EVER
    if not isinstance(call.until, datetime) or is_stream:
        expected = "a datetime" if not is_stream else "None, because a stream ends with its last row"
        problems.append(f"until={call.until!r}: expected {expected}")
        return FOR_EVER
    row = session.range(1).select(F.unix_micros(F.lit(call.until).cast("timestamp"))).first()
    assert row is not None, "it is one row"
    return int(row[0])


def _select_key_columns(call: QueryCall, graph: Graph) -> Mapping[str, int] | None:
    if call.partition_by is None:
        return None
    return {name: position for name, position in call.partition_by.items() if name in graph.streams}
