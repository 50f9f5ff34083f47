"""Durations: the arguments `tolerance`, `retain` and `watermark` accept the same values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkext import asof_join
from sparkext.errors import InvalidCallError
from sparkext.joins.durations import read_duration
from sparkext.streams import cql, stream_asof_join, stream_join

MINUTE = 60_000_000
ACCEPTED: list[tuple[Any, int]] = [
    ("10 minutes", 10 * MINUTE),
    (" 1 Hour ", 60 * MINUTE),
    ("interval 1 hour 30 minutes", 90 * MINUTE),
    ("INTERVAL 1 week", 7 * 24 * 60 * MINUTE),
    ("1.5 seconds", 1_500_000),
    ("1 day 2 milliseconds 3 microseconds", 24 * 60 * MINUTE + 2_003),
    ("0 seconds", 0),
    ("5 min 3s", 5 * MINUTE + 3_000_000),
    (timedelta(minutes=10), 10 * MINUTE),
    (timedelta(0), 0),
]
REFUSED = ["1 month", "2 years", "", "interval", "minutes", "-1 hour", "0.5 microseconds", "1 hour x", -1, 5, True]


@pytest.mark.parametrize(("value", "expected"), ACCEPTED, ids=str)
def test_accepted(value: Any, expected: int) -> None:
    problems: list[str] = []
    assert read_duration("retain", value, problems) == expected and not problems


@pytest.mark.parametrize("value", [*REFUSED, timedelta(microseconds=-1)], ids=repr)
def test_refused(value: Any) -> None:
    problems: list[str] = []
    assert read_duration("retain", value, problems) is None
    [problem] = problems
    assert problem.startswith(f"retain={value!r}: expected a duration of at least 0, such as '10 minutes'")


@pytest.mark.parametrize("value", ["10 minutes", "interval 600 seconds", timedelta(minutes=10), "1 month", 5], ids=repr)
def test_every_argument(spark: SparkSession, value: Any) -> None:
    rate = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "time")
    other = rate.withWatermark("time", "1 second").select(F.col("time").alias("at"), F.col("value").alias("low"))
    marked = rate.withWatermark("time", "1 second")
    table = spark.createDataFrame([(datetime(2026, 1, 1), 1)], "at timestamp, low int")
    queries = cql("REGISTER STREAM s (value bigint); REGISTER QUERY q ISTREAM(SELECT value FROM s [Now])")
    near = {"on": ("time", "at"), "tolerance": value}
    calls: dict[str, Callable[[], Any]] = {
        "tolerance": lambda: rate.transform(asof_join(table, **near)),
        "tolerance of streams": lambda: stream_asof_join(marked, other, **near),
        "retain": lambda: stream_join(marked, other, on=[("value", "low")], retain=value),
        "retain of one side": lambda: stream_join(marked, other, on=[("value", "low")], retain=(value, None)),
        "watermark": lambda: queries.output("q", s=rate, time="time", watermark=value),
    }
    for argument, call in calls.items():
        if value in ("1 month", 5):
            with pytest.raises(InvalidCallError, match="months and years have no fixed length") as raised:
                call()
            assert f"{argument.split()[0]}={value!r}: expected " in str(raised.value)
        else:
            assert call().isStreaming


@pytest.mark.parametrize("tolerance", [2, "2 days", "50 hours", timedelta(days=2)], ids=repr)
def test_days(spark: SparkSession, tolerance: Any) -> None:
    left = spark.sql("SELECT explode(array(DATE'2026-01-03', DATE'2026-01-04')) AS day")
    right = spark.sql("SELECT DATE'2026-01-01' AS start")
    out = left.transform(asof_join(right, on=("day", "start"), tolerance=tolerance))
    assert [row.start is not None for row in out.orderBy("day").collect()] == [True, False]
