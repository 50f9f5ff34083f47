"""`cql` in queries of Spark: streams emit the rows of the definitions, for any batches, also after a restart."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from bench.cases.streams.trading import TRADING
from sparkext import report
from sparkext.errors import InvalidQueryError
from sparkext.streams import ContinuousQueries, cql
from tests.oracle.cql import run_graph
from tests.support.feeds import Feed, bare, run

START = datetime(2026, 1, 1)
QUOTAS = """
    REGISTER STREAM asked (who string, n int NOT NULL);
    REGISTER STREAM granted (n bigint, who string);
    REGISTER QUERY left_stream ISTREAM(SELECT who, n FROM granted [Now] UNION ALL
        SELECT l.who, l.n - t.n AS n FROM quota l, taken [Now] t WHERE l.who = t.who)<Now>;
    REGISTER QUERY quota SELECT * FROM left_stream [Partition By who Rows 1];
    REGISTER QUERY taken ISTREAM(SELECT a.who, a.n FROM asked [Now] a, quota q WHERE a.who = q.who AND q.n >= a.n);
    REGISTER QUERY busy SELECT who, count(*) AS times, sum(n) AS n FROM taken [Range 3 seconds] GROUP BY who;
    REGISTER QUERY calmed DSTREAM(SELECT who, times FROM busy WHERE times > 1);
"""
"""Each request is granted the remainder of a quota."""

ASKED = "who string, n int, ts timestamp, seq int"
GRANTED = "ts timestamp, n int, who string, seq int"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def micros(time: datetime) -> int:
    return round((time - START).total_seconds() * 1_000_000)


@pytest.fixture
def feeds(spark: SparkSession, tmp_path: Path) -> tuple[Feed, Feed]:
    asked, granted = Feed(spark, tmp_path / "asked", ASKED), Feed(spark, tmp_path / "granted", GRANTED)
    draw, seq = random.Random(1), iter(range(10_000))
    people = [*"abcdefgh", None]
    for batch in range(4):
        late = 5 * batch
        granted.add([(at(late + draw.random() * 8), draw.randint(0, 40), who, next(seq)) for who in people * 2])
        rows = [
            (draw.choice(people), draw.randint(1, 9), at(late + draw.randrange(16) / 2), next(seq)) for _ in range(80)
        ]
        asked.add(rows)
    return asked, granted


def expected(queries: ContinuousQueries, feeds: tuple[Feed, Feed]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows that the definitions give for all input, per query in time order."""
    asked = [(micros(ts), seq, (who, n)) for who, n, ts, seq in map(tuple, feeds[0].table().collect())]
    granted = [(micros(ts), seq, (n, who)) for ts, n, who, seq in map(tuple, feeds[1].table().collect())]
    inputs = {"asked": [(t, row) for t, _, row in sorted(asked, key=lambda one: one[:2])]}
    inputs["granted"] = [(t, row) for t, _, row in sorted(granted, key=lambda one: one[:2])]
    return {
        name: [(*row, START + timedelta(microseconds=t)) for t, row in rows]
        for name, rows in run_graph(queries._graph, inputs).items()
    }


def by_key(rows: list[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    found: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def test_tables_emit_what_is_defined(feeds: tuple[Feed, Feed]) -> None:
    queries = cql(QUOTAS)
    assert "key       asked.who = granted.who" in repr(queries)
    options = {"asked": feeds[0].table(), "granted": feeds[1].table(), "time": "ts", "ties": "seq"}
    rows = [tuple(row) for row in queries.outputs("taken", "calmed", **options).collect()]
    for place, name in enumerate(("taken", "calmed")):
        found = by_key([(*row[2 + place], row[1]) for row in rows if row[0] == name])
        assert found == by_key(expected(queries, feeds)[name])
        assert len(found) > 5


def test_streams_emit_what_tables_do(spark: SparkSession, feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """The query restarts with another number of partitions, and a batch whose sink fails runs again."""
    queries, batches, failed = cql(QUOTAS), dict[int, list[tuple[Any, ...]]](), tmp_path / "failed"
    watermark = "3 seconds"

    def out() -> DataFrame:
        options = {"time": "ts", "ties": "seq", "watermark": watermark, "name": "quotas"}
        return queries.outputs("taken", "calmed", asked=feeds[0].stream(), granted=feeds[1].stream(), **options)

    def keep(frame: DataFrame, batch: int) -> None:
        batches[batch] = [tuple(row) for row in frame.collect()]
        if batch == 2 and not failed.exists():
            failed.touch()
            raise RuntimeError("no room")

    assert bare(out().schema)[1] == ("ts", feeds[0].table().schema["ts"].dataType, False)
    with pytest.raises(StreamingQueryException, match="no room"):
        run(out(), tmp_path / "cp", keep)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        query = run(out(), tmp_path / "cp", keep)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    rows = [row for batch in sorted(batches) for row in batches[batch]]
    late = sum(told.late_rows for told in report(query).of("quotas"))
    assert late == 0
    newest = max(row[1] for row in rows)
    for place, name in enumerate(("taken", "calmed")):
        found = by_key([(*row[2 + place], row[1]) for row in rows if row[0] == name])
        due = [row for row in expected(queries, feeds)[name] if row[-1] <= newest]
        assert found == by_key(due)
        assert len(due) > 10


def test_time_goes_on_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A delay expires when the watermark passes it, even if its key has no further rows."""
    feed = Feed(spark, tmp_path / "feed", "k int, ts timestamp")
    queries = cql("""
        REGISTER STREAM s (k int);
        REGISTER QUERY later ISTREAM(SELECT k FROM s [Now])<5 seconds>;
        REGISTER QUERY often RSTREAM[2 seconds](SELECT k FROM s [Range 3 seconds]);
    """)
    for rows in ([(1, at(1))], [(2, at(3))], [(3, at(20))]):
        feed.add(rows)
    emitted: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for name in ("later", "often"):
        out = queries.output(name, s=feed.stream(), time="ts", watermark="0 seconds")
        run(out, tmp_path / name, lambda frame, batch, name=name: emitted[name].extend(map(tuple, frame.collect())))
    assert sorted(emitted["later"]) == [(1, at(6)), (2, at(8))]
    assert sorted(emitted["often"]) == [(1, at(2)), (1, at(4)), (2, at(4)), (2, at(6)), (3, at(20))]


@pytest.mark.parametrize("time", ["100%", "x.y", "a`b"])
def test_a_time_of_any_name(spark: SparkSession, time: str, tmp_path: Path) -> None:
    queries = cql("REGISTER STREAM s (k int); REGISTER QUERY q ISTREAM(SELECT k FROM s [Now])")
    feed = Feed(spark, tmp_path / "feed", f"k int, `{time.replace('`', '``')}` timestamp")
    assert queries.output("q", s=feed.stream(), time=time, watermark="0 seconds").columns == ["k", time]


def test_what_may_go_on_for_ever_needs_an_end(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, at(1))], "k int, ts timestamp")
    queries = cql("""
        REGISTER STREAM s (k int);
        REGISTER QUERY q ISTREAM(SELECT k FROM s [Now] UNION ALL SELECT k FROM q [Now])<1 second>;
    """)
    with pytest.raises(InvalidQueryError, match=r"queries may emit rows for ever: q\. Pass until=…"):
        queries.output("q", s=frame, time="ts")
    until = at(4).astimezone(timezone.utc)
    found = queries.output("q", s=frame, time="ts", until=until).collect()
    assert [row[1] for row in found] == [at(2), at(3), at(4)]


def test_a_cycle_without_rest_and_too_large_a_state_are_errors(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, at(1))], "k int, ts timestamp")
    queries = cql("""
        REGISTER STREAM s (k int);
        REGISTER QUERY q ISTREAM(SELECT k FROM s [Now] UNION ALL SELECT k + 1 AS k FROM q [Now])<Now>;
    """)
    spark.conf.set("spark.sparkext.cql.maxInstants", "50")
    try:
        with pytest.raises(PySparkException, match=r"q ▶ q still changes after 50 instants or rounds at 2026-01-01 "):
            queries.output("q", s=frame, time="ts").collect()
    finally:
        spark.conf.unset("spark.sparkext.cql.maxInstants")


def test_null_times_and_nulls_that_may_not_be_are_errors(spark: SparkSession) -> None:
    queries = cql("REGISTER STREAM s (k int NOT NULL); REGISTER QUERY q ISTREAM(SELECT k FROM s [Now])")
    schema = "k int, ts timestamp"
    for row, told in (
        ((1, None), "ts is null in a row of s"),
        ((None, at(1)), "k is null in a row of s, but registered as NOT NULL"),
    ):
        with pytest.raises(PySparkException, match=told):
            queries.output("q", s=spark.createDataFrame([row], schema), time="ts").collect()


def test_problems_of_a_call_are_told_together(spark: SparkSession) -> None:
    queries = cql(TRADING)
    prices = spark.createDataFrame([("a", "cheap", at(1))], "id string, price string, ts timestamp")
    with pytest.raises(InvalidQueryError) as raised:
        queries.output("stock", market=prices, stocks=prices, time="ts")
    told = str(raised.value)
    assert "stock is a relation, which is not emitted: use ISTREAM, DSTREAM or RSTREAM" in told
    assert "stocks=…: there is no stream stocks. Registered streams: market, initial_resource, stock_events" in told
    with pytest.raises(InvalidQueryError) as raised:
        queries.output("buy_event", market=prices, initial_resource=prices, stock_events=prices, time="at", ties=3)
    assert "ties=3: expected the name of a column" in str(raised.value)
    with pytest.raises(InvalidQueryError) as raised:
        queries.output("buy_event", market=prices, initial_resource=prices, stock_events=prices, time="id")
    told = str(raised.value)
    for part in (
        "column price of market has type string, but is registered as double",
        "initial_resource's column 'val' does not exist",
        "id of market is a string: expected a timestamp",
    ):
        assert part in told
    with pytest.raises(InvalidQueryError, match="needs the DataFrame of the stream market: pass market=…"):
        queries.output("buy_event", initial_resource=prices, stock_events=prices, time="ts")
    with pytest.raises(InvalidQueryError, match="rows cannot be partitioned by these columns, because of"):
        cql(QUOTAS, partition_by={"asked": "who", "granted": "n"})
    with pytest.raises(InvalidQueryError, match="line 1, column 1: found 'nonsense', expected REGISTER"):
        cql("nonsense")
