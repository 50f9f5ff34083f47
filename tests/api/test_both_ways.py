"""Every public function of a DataFrame, called with the DataFrame as its first argument and as a transform."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkext import asof_join, pipelined_join, theta_join
from sparkext.errors import InvalidCallError, InvalidQueryError
from sparkext.streams import cql, ordered, stream_asof_join, stream_join
from tests.api.spark_checks import rows_of

QUERIES = cql("""
    REGISTER STREAM left (k bigint, v bigint);
    REGISTER STREAM other (k bigint);
    REGISTER QUERY one ISTREAM(SELECT k, v FROM left [Now]);
    REGISTER QUERY doubled ISTREAM(SELECT k, v * 2 AS w FROM left [Now]);
    REGISTER QUERY both ISTREAM(SELECT l.k FROM left [Now] l, other [Now] o WHERE l.k = o.k);
""")
ON_TABLES: dict[str, tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]] = {
    "pipelined_join": (pipelined_join, ("right",), {"on": [("k", "a")], "how": "left"}),
    "pipelined_join, partitioned": (pipelined_join, ("right",), {"on": [("k", "a")], "partitioned": True}),
    "pipelined_join, local": (pipelined_join, ("local",), {"on": [("k", "a")], "how": "semi"}),
    "asof_join": (asof_join, ("right",), {"on": ("time", "at"), "tolerance": "1 minute"}),
    "theta_join": (theta_join, ("right",), {"predicate": lambda left, right: left.v > right.a}),
    "ordered": (ordered, (), {"time": "time", "order_key": "k"}),
}
ON_STREAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]] = {
    "pipelined_join": (pipelined_join, ("table",), {"on": [("k", "a")]}),
    "stream_join": (stream_join, ("right",), {"on": [("k", "<", "a")], "retain": "1 hour"}),
    "stream_join by a function": (stream_join, ("right",), {"on": lambda left, right: left.v > right.a}),
    "stream_asof_join": (stream_asof_join, ("right",), {"on": ("time", "at"), "by": [("k", "a")]}),
    "ordered": (ordered, (), {"time": "time", "order_key": "k"}),
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, Any]:
    start = datetime(2026, 1, 1)
    left = [(k % 5, k, start + timedelta(seconds=k)) for k in range(20)]
    right = [(k, start + timedelta(seconds=3 * k)) for k in range(4)]
    other = spark.createDataFrame(right, "a bigint, at timestamp")
    return {
        "left": spark.createDataFrame(left, "k bigint, v bigint, time timestamp"),
        "right": other,
        "local": other.toPandas(),
    }


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tables: dict[str, Any]) -> dict[str, Any]:
    rate = spark.readStream.format("rate").load()
    left = rate.selectExpr("value % 5 AS k", "value AS v", "timestamp AS time").withWatermark("time", "1 second")
    right = rate.selectExpr("value AS a", "timestamp AS at").withWatermark("at", "1 second")
    return {"left": left, "right": right, "table": tables["right"]}


def both(function: Callable[..., Any], left: DataFrame, *others: Any, **options: Any) -> list[DataFrame]:
    transform = function(*others, **options)
    results = [function(left, *others, **options), left.transform(transform), transform(left)]
    assert [result.schema for result in results] == [results[0].schema] * 3
    return [*results, left.transform(function, *others, **options)]


@pytest.mark.parametrize("name", ON_TABLES)
def test_tables(tables: dict[str, Any], name: str) -> None:
    function, others, options = ON_TABLES[name]
    one, two, *_ = both(function, tables["left"], *(tables[other] for other in others), **options)
    assert rows_of(one) == rows_of(two) and rows_of(one)


@pytest.mark.parametrize("name", ON_STREAMS)
def test_streams(streams: dict[str, Any], name: str) -> None:
    function, others, options = ON_STREAMS[name]
    frames = both(function, streams["left"], *(streams[other] for other in others), **options)
    assert all(frame.isStreaming for frame in frames)


def test_arguments_by_position(tables: dict[str, Any]) -> None:
    left, local = tables["left"], tables["local"].rename(columns={"a": "k"})
    joined = pipelined_join(left, local, "k", "left")
    assert rows_of(joined) == rows_of(left.transform(pipelined_join(local, "k", "left")))
    near = theta_join(left, local[["at"]], lambda one, other: one.time == other.at)
    assert near.columns == ["k", "v", "time", "at"]


def test_queries(tables: dict[str, Any]) -> None:
    left = tables["left"]
    one = QUERIES.output("one", time="time", left=left)
    assert rows_of(one) == rows_of(left.transform(QUERIES.output("one", time="time"))) and rows_of(one)
    several = QUERIES.outputs("one", "doubled", time="time", left=left)
    assert rows_of(several) == rows_of(left.transform(QUERIES.outputs("one", "doubled", time="time")))


def test_queries_over_several_streams_have_no_main_stream(tables: dict[str, Any]) -> None:
    with pytest.raises(InvalidQueryError, match="needs the DataFrame of the stream other"):
        QUERIES.output("both", time="time")
    with pytest.raises(InvalidQueryError, match="there is no query 'nothing'"):
        QUERIES.output("nothing", time="time")


@pytest.mark.parametrize("name", [*ON_TABLES, *ON_STREAMS])
def test_a_left_side_that_is_no_dataframe(tables: dict[str, Any], streams: dict[str, Any], name: str) -> None:
    function, others, options = {**ON_STREAMS, **ON_TABLES}[name]
    given = [{**streams, **tables}[other] for other in others]
    for call in (lambda: function(*given, **options)(5), lambda: function(tables["local"], *given, **options)):
        with pytest.raises(InvalidCallError, match=r"must be a Spark DataFrame, got (int|pandas)"):
            call()
