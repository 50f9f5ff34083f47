"""Every stream operator restarts with another number of partitions, and finally has emitted the batch query's rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import asof_join
from sparkext.streams import cql, ordered, stream_asof_join, stream_join
from tests.support.feeds import START, Feed, run
from tests.support.rows import rows_of
from tests.support.sessions import configured

TRADES = "id long, symbol string, price double, ts timestamp"
QUOTES = "number long, of string, bid double, qts timestamp"
PARTITIONS = (2, 1, 4, 3, 2)
SECONDS = 20
LATER = START + timedelta(days=1)


@pytest.fixture
def partitions(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    keys = ("spark.sql.shuffle.partitions", "spark.sql.leafNodeDefaultParallelism")

    def chosen(count: int) -> None:
        for key in keys:
            spark.conf.set(key, str(count))

    with configured(spark, dict.fromkeys(keys, 2)):
        yield chosen


def declared(frame: DataFrame) -> DataFrame:
    """Add NOT NULL columns: constants, computed and nested ones."""
    return frame.withColumns(
        {
            "kind": F.lit("trade"),
            "paid": F.coalesce("price", F.lit(0.0)),
            "more": F.struct("id", F.array(F.lit("a"), "symbol").alias("tags")),
        }
    )


def running(rows: pa.Table, state: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    """Number the rows of a symbol, and compute the running total of their prices."""
    count, total, made = state["count"], state["total"], []
    for row in rows.select(["symbol", "id", "ts", "paid"]).to_pylist():
        count, total = count + 1, total + row["paid"]
        made.append((row["symbol"], row["id"], row["ts"], count, total))
    columns = zip(*made, strict=True)
    return pa.table([*columns], names=["symbol", "id", "ts", "count", "total"]), {"count": count, "total": total}


QUERIES = """
    REGISTER STREAM trades (id bigint, symbol string, paid double NOT NULL, kind string);
    REGISTER STREAM quotes (number bigint, of string, bid double);
    REGISTER QUERY last SELECT * FROM quotes [Partition By of Rows 1];
    REGISTER QUERY hits ISTREAM(
        SELECT t.id, t.kind, t.paid, l.number FROM trades [Now] t, last l WHERE {joined} AND t.paid > l.bid);
"""
ORDERED = {"time": "ts", "ties": "id", "order_key": "symbol", "operator_key": "symbol"}
RUNNING = "symbol string, id long, ts timestamp, count long, total double"
OPERATORS: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "stream_join": lambda trades, quotes: stream_join(
        trades, quotes, on=[("symbol", "of"), ("paid", ">", "bid")], retain="1 minute", how="left"
    ),
    "stream_asof_join": lambda trades, quotes: stream_asof_join(
        trades, quotes, on=("ts", "qts"), by=[("symbol", "of")], ties="number"
    ),
    "ordered": lambda trades, quotes: ordered(trades, time="ts", ties="id", order_key="symbol"),
    "ordered with a state": lambda trades, quotes: ordered(
        trades, **ORDERED, apply=running, schema=RUNNING, state={"count": 0, "total": 0.0}
    ),
    "cql with a key": lambda trades, quotes: cql(QUERIES.format(joined="t.symbol = l.of")).output(
        "hits", trades=trades, quotes=quotes.withColumnRenamed("qts", "ts"), time="ts"
    ),
    "cql without a key": lambda trades, quotes: cql(QUERIES.format(joined="t.id <> l.number")).output(
        "hits", trades=trades, quotes=quotes.withColumnRenamed("qts", "ts"), time="ts"
    ),
}


def answer(operator: str, trades: DataFrame, quotes: DataFrame) -> DataFrame:
    """Return the result of the operator for the same rows as tables."""
    if operator == "stream_join":
        apart = F.unix_micros("qts") - F.unix_micros("ts")
        on = (F.col("symbol") == F.col("of")) & (F.col("paid") > F.col("bid")) & (F.abs(apart) <= 60_000_000)
        return trades.join(quotes, on, "left")
    if operator == "stream_asof_join":
        return trades.transform(asof_join(quotes, ("ts", "qts"), by=[("symbol", "of")]))
    return OPERATORS[operator](trades, quotes)


@pytest.mark.parametrize("operator", OPERATORS)
def test_any_number_of_partitions(
    spark: SparkSession, tmp_path: Path, partitions: Callable[[int], None], operator: str
) -> None:
    draw, times = random.Random(operator), iter(range(1 << 40))
    feeds = Feed(spark, tmp_path / "trades", TRADES), Feed(spark, tmp_path / "quotes", QUOTES)
    found: dict[int, list[Any]] = {}

    def sink(frame: DataFrame, batch: int) -> None:
        found[batch] = [tuple(row) for row in frame.collect()]

    def made(seconds: int, rows: int) -> list[tuple[Any, ...]]:
        """Return rows within ten seconds, with unique times."""
        return [
            (
                draw.randrange(1000),
                draw.choice(["hot", "hot", "a", "b", "c"]),
                float(draw.randrange(100)),
                START + timedelta(seconds=seconds + draw.randrange(10), microseconds=next(times)),
            )
            for _ in range(rows)
        ]

    for number, count in enumerate(PARTITIONS):
        for feed in feeds:
            feed.add(made(SECONDS * number, 60) if number + 1 < len(PARTITIONS) else [(0, "z", 1.0, LATER)])
        partitions(count)
        trades = declared(feeds[0].stream().withWatermark("ts", "10 seconds"))
        quotes = feeds[1].stream().withWatermark("qts", "10 seconds")
        run(OPERATORS[operator](trades, quotes), tmp_path / "cp", sink)
    tables = declared(feeds[0].table()).where(F.col("ts") < LATER), feeds[1].table().where(F.col("qts") < LATER)
    expected = rows_of(answer(operator, *tables))
    emitted = [row for batch in sorted(found) for row in found[batch] if LATER not in row]
    assert Counter(map(repr, emitted)) == expected and len(expected) > 20
    assert sum(1 for batch in found.values() if batch) >= len(PARTITIONS) - 1
    if operator.startswith("ordered"):
        where = 1 if operator != "ordered with a state" else 0
        for symbol in {row[where] for row in emitted}:
            own = [row[3 if where else 2] for row in emitted if row[where] == symbol]
            assert own == sorted(own)
