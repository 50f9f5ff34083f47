"""`stream_asof_join` in queries of Spark emits the rows that `asof_join` finds among all rows."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import SparkExtError, asof_join
from sparkext.streams import stream_asof_join
from tests.support.feeds import Feed, Sink, bare, points, run, spans
from tests.support.rows import rows_of

DELAY = "10 seconds"


def fed(feeds: tuple[Feed, Feed], draw: random.Random, batches: int = 4) -> datetime:
    """Add rows, none of which is late, and return the last watermark."""
    latest = []
    for feed, rows in zip(feeds, (points, spans), strict=True):
        for number in range(batches):
            feed.add([(100 * number + row[0], *row[1:]) for row in rows(draw, 25, 9 * number)])
        latest.append(feed.table().agg(F.max(feed.table().columns[-1])).head()[0])
    return min(latest) - timedelta(seconds=10)


def streams(feeds: tuple[Feed, Feed]) -> tuple[DataFrame, DataFrame]:
    left, right = feeds
    return left.stream().withWatermark("at", DELAY), right.stream().withWatermark("time", DELAY)


@pytest.mark.parametrize(
    ("direction", "seconds", "how"), [("backward", None, "left"), ("backward", 3, "inner"), ("nearest", 4, "left")]
)
def test_like_a_join_with_a_table(
    feeds: tuple[Feed, Feed], direction: str, seconds: int | None, how: str, tmp_path: Path
) -> None:
    """Rows of equal time are ordered by a column, as in the table."""
    sink = Sink()
    watermark = fed(feeds, random.Random(direction))
    tolerance = None if seconds is None else timedelta(seconds=seconds)
    asked: dict[str, Any] = {"by": [("k", "d")], "direction": direction, "tolerance": tolerance, "how": how}
    out = stream_asof_join(*streams(feeds), on=("at", "time"), ties="rid", **asked)
    run(out, tmp_path / "cp", sink)
    table = feeds[1].table().orderBy("rid").coalesce(1)
    waits = timedelta(seconds=4 if direction == "nearest" else 0)
    expected = (
        feeds[0]
        .table()
        .where(F.col("at") <= F.lit(watermark - waits))
        .transform(asof_join(table, ("at", "time"), **asked))
    )
    assert out.isStreaming and bare(out.schema) == bare(expected.schema)
    assert sink.rows() == rows_of(expected) and sink.rows().total() > 20
    assert len(sink.batches) == 5, "the last watermark is known in a batch without rows"


def test_windows_behind_it(feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """Rows are emitted when the watermark passes them, so they are never late for the windows."""
    sink = Sink()
    watermark = fed(feeds, random.Random(2))
    out = stream_asof_join(*streams(feeds), on=("at", "time"), by=[("k", "d")])
    counts = (F.count("*").alias("rows"), F.count("rid").alias("priced"))
    windows = out.groupBy(F.window("at", "5 seconds")).agg(*counts).select("window.end", *counts_of())
    run(windows, tmp_path / "cp", sink)
    joined = feeds[0].table().transform(asof_join(feeds[1].table(), ("at", "time"), by=[("k", "d")]))
    expected = joined.groupBy(F.window("at", "5 seconds")).agg(*counts).select("window.end", *counts_of())
    assert sink.rows() == rows_of(expected.where(F.col("end") <= F.lit(watermark)))
    assert len(sink.rows()) > 2


def counts_of() -> tuple[str, str]:
    return "rows", "priced"


def test_what_cannot_be_joined(spark: SparkSession, feeds: tuple[Feed, Feed]) -> None:
    for feed in feeds:
        feed.add([])
    left, right = streams(feeds)

    def problems(*sides: Any, **options: Any) -> str:
        with pytest.raises(SparkExtError) as caught:
            stream_asof_join(*sides, **options)
        return str(caught.value)

    on = ("at", "time")
    assert "to join a stream with a table, use asof_join" in problems(left, feeds[1].table(), on=on)
    assert "requires one column with a watermark on the left side" in problems(feeds[0].stream(), right, on=on)
    assert "direction='forward' requires a tolerance" in problems(left, right, on=on, direction="forward")
    assert "on must name the column with the watermark: on the left side" in problems(left, right, on=("price", "low"))
    told = problems(left, right, on=on, ties="rids", how="right", name="a b")
    assert "right column 'rids' does not exist" in told and "how='right'" in told and "name='a b'" in told
    nested = right.withColumn("more", F.struct("rid"))
    assert "rows cannot be ordered by a struct" in problems(left, nested, on=on, ties="more")
