"""`ordered` in queries of Spark: the rows of a key are in order across batches, and in one partition per batch."""

from __future__ import annotations

import os
import random
import re
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import report
from sparkext.errors import InvalidOrderError
from sparkext.streams import ordered, stream_join
from tests.support.feeds import START, Feed, bare, run
from tests.support.rows import rows_of

READINGS = "device string, sensor int, ts timestamp, level double"
ALERTS = "device string, sensor int, ts timestamp, rise double"


def readings(draw: random.Random, rows: int, seconds: int) -> list[tuple[Any, ...]]:
    """Return random rows. Most are of one device, which has many sensors."""
    made = []
    for _ in range(rows):
        device = draw.choice(["hot"] * 6 + ["a", "b", None])
        sensor = draw.randrange(50) if device == "hot" else draw.randrange(3)
        at = START + timedelta(seconds=seconds, microseconds=draw.randrange(20_000_000))
        made.append((device, sensor, at, draw.random()))
    return made


def rises(rows: pa.Table, last: float) -> tuple[pa.Table, float]:
    """Return by how much a level exceeds the previous one, for the rows in which it does."""
    levels = rows["level"].to_pylist()
    rise = [level - before for before, level in zip([last, *levels], levels, strict=False)]
    made = rows.drop_columns("level").append_column("rise", pa.array(rise))
    return made.filter(pa.array([one > 0 for one in rise])), levels[-1]


def expected_rises(rows: list[Any]) -> dict[Any, list[tuple[Any, ...]]]:
    last: dict[Any, float] = defaultdict(float)
    out: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for device, sensor, at, level in sorted(rows, key=lambda row: row[2]):
        if level > last[device, sensor]:
            out[device].append((device, sensor, at, level - last[device, sensor]))
        last[device, sensor] = level
    return out


class InOrder:
    """Stores the rows of each batch by partition, and asserts that each device is in one partition."""

    def __init__(self) -> None:
        self.batches: dict[int, dict[Any, list[tuple[Any, ...]]]] = {}
        self.partitions: dict[Any, set[int]] = defaultdict(set)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        found: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
        where: dict[Any, int] = {}
        for *row, partition in frame.withColumn("partition", F.spark_partition_id()).collect():
            assert where.setdefault(row[0], partition) == partition
            self.partitions[row[0]].add(partition)
            found[row[0]].append(tuple(row))
        self.batches[batch] = found

    def rows(self) -> dict[Any, list[tuple[Any, ...]]]:
        out: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
        for batch in sorted(self.batches):
            for device, rows in self.batches[batch].items():
                out[device] += rows
        return out


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path / "readings", READINGS)


def marked(feed: Feed) -> DataFrame:
    return feed.stream().withWatermark("ts", "10 seconds")


def on_time(feed: Feed, runs: list[int]) -> list[Any]:
    """Return the rows that are not late if each file is a batch, and each run ends with a batch without rows."""
    files = iter(sorted(feed.folder.glob("*.parquet"), key=lambda path: int(path.stem.split()[-1])))
    found: list[Any] = []
    newest = late = None
    for count in runs:
        for number in range(count + 1):
            read = feed.spark.read.schema(READINGS)
            rows = [tuple(row) for row in read.parquet(str(next(files))).collect()] if number < count else []
            found += [row for row in rows if late is None or row[2] > late]
            late = newest and newest - timedelta(seconds=10)
            newest = max([row[2] for row in rows] + ([newest] if newest else []))
    return found


@pytest.mark.parametrize("split", [True, False])
def test_each_device_is_in_order(spark: SparkSession, feed: Feed, split: bool, tmp_path: Path) -> None:
    """The query restarts with another number of partitions, and a batch whose sink fails runs again."""
    draw, sink = random.Random(split), InOrder()
    options: dict[str, Any] = {"operator_key": "sensor", "order_key": "device", "apply": rises, "schema": ALERTS}
    failed = tmp_path / "failed"

    def failing(frame: DataFrame, batch: int) -> None:
        sink(frame, batch)
        if batch == 3 and not failed.exists():
            failed.touch()
            raise RuntimeError("no room")

    for partitions, batches in (("2", 4), ("3", 4)):
        for _ in range(batches):
            feed.add(readings(draw, 1500, 8 * len(list(feed.folder.glob("*.parquet")))))
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        out = ordered(marked(feed), time="ts", state=0.0, split=split, name="alerts", **options)
        assert bare(out.schema) == bare(spark.createDataFrame([], ALERTS).schema)
        if partitions == "2":
            with pytest.raises(StreamingQueryException, match="no room"):
                run(out, tmp_path / "cp", failing)
        query = run(out, tmp_path / "cp", failing)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    kept = on_time(feed, [4, 4])
    watermark = max(row[2] for row in kept) - timedelta(seconds=10)
    expected = expected_rises([row for row in kept if row[2] <= watermark])
    found = sink.rows()
    assert {device: [row[:3] for row in rows] for device, rows in found.items()} == {
        device: [row[:3] for row in rows] for device, rows in expected.items()
    }
    for device, rows in expected.items():
        assert [row[3] for row in found[device]] == pytest.approx([row[3] for row in rows])
    told = report(query).of("alerts")
    assert (sum(batch.merged_rows for batch in told) > 0) == split
    assert re.search(r"^alerts +\S+ +\S+ +\S+", str(report(query)), re.MULTILINE)
    assert sum(batch.late_rows for batch in told) > 0


def test_rows_that_come_late_are_told(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    draw = random.Random(2)
    for number in range(4):
        feed.add(readings(draw, 50, 30 * number) + readings(draw, 5, 0))
    out = ordered(marked(feed), time="ts", order_key="device", ties="level", late="late")
    assert out.schema.names == ["device", "sensor", "ts", "level", "late"]
    found: list[Any] = []
    run(out, tmp_path / "cp", lambda frame, batch: found.extend(frame.collect()))
    late = [tuple(row.late) for row in found if row.late is not None]
    kept = on_time(feed, [4])
    everything = rows_of(feed.table())
    assert everything == rows_of(spark.createDataFrame(kept + late, READINGS)) and late
    last = max(row[2] for row in kept) - timedelta(seconds=10)
    in_time = [tuple(row)[:4] for row in found if row.late is None]
    assert sorted(in_time, key=repr) == sorted((row for row in kept if row[2] <= last), key=repr)


def test_a_join_of_streams_in_its_place(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    draw = random.Random(3)
    limits = Feed(spark, tmp_path / "limits", "name string, until timestamp, most double")
    for number in range(3):
        feed.add([row for row in readings(draw, 60, 15 * number) if row[0]])
        limits.add([(name, START + timedelta(seconds=15 * number), draw.random()) for name in ("hot", "a", "b")])
    other = limits.stream().withWatermark("until", "10 seconds")
    hits = stream_join(
        marked(feed), other, on=[("device", "name"), ("level", ">", "most")], retain="1 minute", event_time="at"
    )
    sink = InOrder()
    run(ordered(hits, time="at", order_key="device", name="hits"), tmp_path / "cp", sink)
    found = sink.rows()
    assert "hot" in found
    for rows in found.values():
        times = [row[-1] for row in rows]
        assert times == sorted(times) and times


@pytest.mark.parametrize("order_key", ["column", "expression", "table", "all"])
def test_a_table_is_put_in_order(spark: SparkSession, feed: Feed, order_key: str) -> None:
    """The same call orders a table, in one pass."""
    draw = random.Random(4)
    for _ in range(3):
        feed.add(readings(draw, 400, 0))
    table = feed.table()
    devices = table.select("sensor", F.concat(F.lit("room "), F.col("sensor") % 3).alias("room")).distinct()
    named: dict[str, Any] = {
        "column": {"order_key": "device"},
        "expression": {"order_key": F.col("sensor") % 2},
        "table": {"order_key": devices, "operator_key": "sensor"},
        "all": {},
    }[order_key]
    out = ordered(table, time="ts", ties="level", **named)
    assert out.schema == table.schema
    rows = out.withColumn("partition", F.spark_partition_id()).collect()
    key = {
        "column": lambda row: row.device,
        "expression": lambda row: row.sensor % 2,
        "table": lambda row: row.sensor % 3,
        "all": lambda row: 0,
    }[order_key]
    found: dict[Any, list[Any]] = defaultdict(list)
    where: dict[Any, int] = {}
    for row in rows:
        assert where.setdefault(key(row), row.partition) == row.partition
        found[key(row)].append((row.ts, row.level))
    assert all(own == sorted(own) for own in found.values())
    assert rows_of(out) == rows_of(table)


def test_a_function_over_a_table(spark: SparkSession, feed: Feed) -> None:
    feed.add(readings(random.Random(5), 2000, 0))
    out = ordered(
        feed.table(), time="ts", operator_key="sensor", order_key="device", apply=rises, schema=ALERTS, state=0.0
    )
    sink = InOrder()
    sink(out, 0)
    expected = expected_rises([tuple(row) for row in feed.table().collect()])
    assert {device: [row[:3] for row in rows] for device, rows in sink.rows().items()} == {
        device: [row[:3] for row in rows] for device, rows in expected.items()
    }


def test_windows_behind_it(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    """The time column keeps its watermark: no emitted row is late for the windows."""
    draw = random.Random(6)
    for number in range(5):
        feed.add(readings(draw, 200, 15 * number))
    windows = [F.window("ts", "10 seconds"), "device"]
    found: Counter[str] = Counter()
    out = ordered(marked(feed), time="ts", order_key="device").groupBy(*windows).count()
    run(out, tmp_path / "cp", lambda frame, batch: found.update(rows_of(frame)))
    kept = spark.createDataFrame(on_time(feed, [5]), READINGS)
    last = kept.agg(F.max("ts") - F.expr("interval 10 seconds")).first()[0]
    expected = kept.groupBy(*windows).count().where(F.col("window.end") <= last)
    assert found == rows_of(expected) and found


def test_several_sources_and_a_worker_that_dies(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    draw, sink, mark = random.Random(7), InOrder(), tmp_path / "mark"
    other = Feed(spark, tmp_path / "others", READINGS)
    for number in range(3):
        feed.add(readings(draw, 300, 15 * number))
        other.add(readings(draw, 300, 15 * number))
    options: dict[str, Any] = {"operator_key": "sensor", "order_key": "device", "schema": ALERTS, "state": 0.0}

    def dying(rows: pa.Table, last: float) -> tuple[pa.Table, float]:
        if mark.exists():
            mark.unlink()
            os._exit(1)
        return rises(rows, last)

    both = feed.stream().union(other.stream()).withWatermark("ts", "10 seconds")
    out = ordered(both, time="ts", apply=dying, **options)

    def arming(frame: DataFrame, batch: int) -> None:
        sink(frame, batch)
        if batch == 0 and not (tmp_path / "armed").exists():
            (tmp_path / "armed").touch()
            mark.touch()

    with pytest.raises(StreamingQueryException):
        run(out, tmp_path / "cp", arming)
    assert not mark.exists()
    run(out, tmp_path / "cp", arming)
    everything = [tuple(row) for row in feed.table().union(other.table()).collect()]
    watermark = max(row[2] for row in everything) - timedelta(seconds=10)
    expected = expected_rises([row for row in everything if row[2] <= watermark])
    assert {device: [row[:3] for row in rows] for device, rows in sink.rows().items()} == {
        device: [row[:3] for row in rows] for device, rows in expected.items()
    }


def test_what_is_refused(spark: SparkSession, feed: Feed) -> None:
    stream, table = marked(feed), feed.table()
    twice = spark.createDataFrame([(1, "x"), (1, "y")], "sensor int, room string")
    applied = {"time": "ts", "apply": rises, "operator_key": "sensor", "schema": ALERTS}
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (feed.stream(), {"time": "ts"}, "time has no watermark"),
        (table, {"time": "level"}, "time is a double: expected a timestamp"),
        (table, {"time": "when"}, "'when' does not exist"),
        (3, {"time": "ts"}, "frame must be a Spark DataFrame, got int"),
        (table, {"time": "ts", "apply": rises}, "apply requires operator_key"),
        (table, {"time": "ts", "apply": rises, "operator_key": "sensor"}, "expected the schema of the rows"),
        (table, {"time": "ts", "schema": ALERTS}, "schema is given, but no apply"),
        (
            table,
            {**applied, "state": {"last": [(1, 2)]}},
            r"cannot be stored, state\['last'\]\[0\]: tuple\. Expected bytes",
        ),
        (table, {**applied, "state": print, "pickle_state": 1}, "pickle_state=1: expected True or False"),
        (table, {**applied, "pickle_state": True}, "pickle_state is given, but no state"),
        (table, {"time": "ts", "order_key": twice, "operator_key": "sensor"}, "several rows for one operator"),
        (table, {"time": "ts", "order_key": stream, "operator_key": "sensor"}, "order_key is a stream"),
        (table, {"time": "ts", "order_key": 3}, "expected the name of a column, or a list"),
        (stream, {"time": "ts", "name": "a/b"}, "at most 100 letters, digits"),
    ]
    for frame, call, message in refused:
        with pytest.raises(InvalidOrderError, match=message):
            ordered(frame, **call)
