"""Windows after a join: the event time of its rows, and the input times that lose their watermark."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkext import SparkExtError
from sparkext.streams import stream_join
from tests.support.feeds import Feed, Sink, points, run, spans
from tests.support.rows import rows_of


@pytest.mark.parametrize("how", ["inner", "left"])
def test_windows(spark: SparkSession, feeds: tuple[Feed, Feed], how: str, tmp_path: Path) -> None:
    """Windows include pairs whose rows arrived far apart."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    draw, sink, (left, right) = random.Random(how), Sink(), feeds
    for number in range(5):
        left.add(points(draw, 20, 20 * number))
        right.add(spans(draw, 20, 20 * number))
    one, other = left.stream().withWatermark("at", "5 seconds"), right.stream().withWatermark("time", "5 seconds")
    hits = stream_join(one, other, on=[("k", "d")], how=how, retain="45 seconds", event_time="when")
    windows = hits.groupBy(F.window("when", "10 seconds")).agg(
        F.count("*").alias("rows"), F.count("rid").alias("pairs")
    )
    run(windows.select("window.end", "rows", "pairs"), tmp_path / "cp", sink)
    spark.conf.set("spark.sql.shuffle.partitions", "2")

    latest = [feed.table().agg(F.max(feed.table().columns[-1])).head()[0] for feed in feeds]
    watermark = F.lit(min(latest) - timedelta(seconds=5))
    near = "k = d and abs(timestampdiff(microsecond, at, time)) <= 45000000"
    joined = left.table().join(right.table(), F.expr(near), how)
    over = F.when(F.col("time").isNull(), F.col("at") + F.expr("interval 45 seconds"))
    when = over.otherwise(F.greatest("at", "time"))
    known = joined.withColumn("when", when).where(F.col("time").isNotNull() | (F.col("when") <= watermark))
    expected = known.groupBy(F.window("when", "10 seconds")).agg(F.count("*"), F.count("rid"))
    assert sink.rows() == rows_of(expected.select("window.end", *expected.columns[1:]).where(F.col("end") <= watermark))
    assert len(sink.rows()) > 3


def test_columns_lose_their_watermark(feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """Otherwise, windows would silently drop matches that are found long after an input's time."""
    left, right = feeds
    left.add([])
    right.add([])
    one, other = left.stream().withWatermark("at", "5 seconds"), right.stream().withWatermark("time", "5 seconds")
    hits = stream_join(one, other, on=[("k", "d")], retain="45 seconds")
    assert not any(field.metadata for field in hits.schema.fields)
    with pytest.raises(AnalysisException, match="watermark"):
        run(hits.groupBy(F.window("at", "10 seconds")).count(), tmp_path / "cp")


def test_what_is_refused(feeds: tuple[Feed, Feed]) -> None:
    left, right = feeds
    left.add([])
    right.add([])
    one = left.stream().withWatermark("at", "5 seconds")
    other = right.stream().withWatermark("time", "5 seconds")

    def problems(*sides: Any, **options: Any) -> str:
        with pytest.raises(SparkExtError) as caught:
            stream_join(*sides, **options)
        return str(caught.value)

    on = [("k", "d")]
    assert "event_time='x': expected a name, for an inner or a left join" in problems(
        one, other, on=on, how="semi", retain="1 hour", event_time="x"
    )
    assert "event_time requires one column with a watermark on the left side" in problems(
        left.stream(), other, on=on, event_time="x"
    )
    assert "more than one column named 'at'" in problems(one, other, on=on, event_time="at")
    renamed = other.withColumnRenamed("time", "at")
    assert "only one column for the two columns with a watermark" in problems(
        one, renamed, on="at", how="left", retain="1 hour", event_time="x"
    )
