"""`stream_join` in queries of Spark: all batches together emit the rows of a join of all input."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

from sparkext import SparkExtError, report
from sparkext.errors import ReportUnavailableError
from sparkext.spark.session_settings import read_s3a_settings
from sparkext.streaming.state.micro_batch import CHECKPOINT, RETAINED, RETAINED_BY_DEFAULT, SECRETS
from sparkext.streaming.state.places import split_location
from sparkext.streams import stream_join
from tests.support.feeds import MATCH, ON, POINTS, SPANS, START, Feed, Sink, bare, points, run, spans
from tests.support.rows import rows_of


@pytest.mark.parametrize("on", ["range", "key", "cross"])
def test_like_a_join_of_tables(spark: SparkSession, feeds: tuple[Feed, Feed], on: str, tmp_path: Path) -> None:
    """The number of partitions changes from run to run."""
    draw, sink, (left, right) = random.Random(on), Sink(), feeds
    named: dict[str, Any] = {"range": {"on": ON}, "key": {"on": [("k", "d")]}, "cross": {"how": "cross"}}
    test = {"range": MATCH, "key": "k = d", "cross": "true"}[on]
    for partitions, sizes in (("2", [(30, 20), (0, 40), (50, 0)]), ("2" if on == "key" else "3", [(30, 30), (1, 1)])):
        for one, other in sizes:
            left.add(points(draw, one))
            right.add(spans(draw, other))
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        run(stream_join(left.stream(), right.stream(), **named[on]), tmp_path / "cp", sink)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    expected = left.table().join(right.table(), F.expr(test))
    assert len(sink.batches) == 5 and sink.rows() == rows_of(expected)
    with pytest.raises(ReportUnavailableError, match="no stream join"):
        report(run(left.stream(), tmp_path / "alone"))
    out = stream_join(left.stream(), right.stream(), **named[on])
    assert out.isStreaming and out.schema == left.stream().join(right.stream(), F.expr("k = d")).schema


def test_checkpoints_at_odd_paths(spark: SparkSession, feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """Equal queries with checkpoints that differ only after a `#`, which URLs cut off: each restarts correctly."""
    draw, (left, right) = random.Random(13), feeds
    others = Feed(spark, tmp_path / "other points", POINTS), Feed(spark, tmp_path / "other spans", SPANS)
    sinks = {"orders #1": (Sink(), left, right), "orders #2": (Sink(), *others)}
    for _ in range(2):
        for name, (sink, one, other) in sinks.items():
            one.add(points(draw, 20))
            other.add(spans(draw, 20))
            run(stream_join(one.stream(), other.stream(), on=ON), tmp_path / name, sink)
    for name, (sink, one, other) in sinks.items():
        assert sink.rows() == rows_of(one.table().join(other.table(), F.expr(MATCH))) and len(sink.batches) == 2
        assert len([*(tmp_path / name / "sparkext").glob("*/left/1-1/*.segment")]) > 0
    assert not (tmp_path / "orders ").exists()


def test_locations_are_read_as_hadoop_does(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    for location in (
        *("/a b#c?d%20e", "file:/a%23b", "file:///x/../y//z/", "s3a://bucket/a#b/ü", "s3a://bucket", "s3a://bucket/"),
        *("a/b:c", "hdfs://host:1/x", "file://host/a", "/a//b/./c", "x:/y", "file:/a\nb"),
    ):
        path = jvm.org.apache.hadoop.fs.Path(location).toUri()
        read = path.getScheme() or "", path.getAuthority() or "", path.getPath()
        assert split_location(location) == read and split_location(str(jvm.org.apache.hadoop.fs.Path(location))) == read


def test_a_query_that_begins_anew_keeps_rows_for_another_time(feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """A query with the same name, streams and checkpoint path uses no index of the previous query."""
    left, right = feeds
    left.add([(n, 1, 1.0, START) for n in range(4)])
    right.add([(n, 1, 0.0, 2.0, START + timedelta(seconds=5 * n)) for n in range(2)])
    counts = []
    for retain in ("1 second", "1 minute"):
        sink = Sink()
        sides = left.stream().withWatermark("at", "1 hour"), right.stream().withWatermark("time", "1 hour")
        run(stream_join(*sides, on=ON, retain=retain, name="hits"), tmp_path / "cp", sink)
        shutil.rmtree(tmp_path / "cp")
        counts.append(sink.rows().total())
    assert counts == [4, 8]


def test_keys_of_buckets_are_sent_to_no_query_elsewhere(
    spark: SparkSession, feeds: tuple[Feed, Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are neither pickled nor set as properties.

    For a checkpoint in a bucket, only that bucket's settings are sent.
    """
    keys = {"fs.s3a.access.key": "somebody", "fs.s3a.secret.key": "word of nobody"}
    others = {"fs.s3a.bucket.other.secret.key": "x", "fs.s3a.encryption.key": "y", "fs.s3a.threads.max": "9"}
    pickled, properties = list[bytes](), list[Any]()
    dumps = CloudPickleSerializer.dumps
    monkeypatch.setattr(
        CloudPickleSerializer, "dumps", lambda self, value: pickled.append(dumps(self, value)) or pickled[-1]
    )

    def look(frame: DataFrame, batch: int) -> None:
        properties.extend(spark.sparkContext.getLocalProperty(name) for name in (SECRETS, CHECKPOINT))
        frame.count()

    for key, value in {**keys, **others}.items():
        spark.conf.set(key, value)
    try:
        feeds[0].add([(1, 1, 1.0, START)])
        run(stream_join(*(feed.stream() for feed in feeds), on=ON), tmp_path / "cp", look)
        found = read_s3a_settings(spark, "shelf")
        assert found.items() >= keys.items() and not found.keys() & others.keys()
    finally:
        for key in (*keys, *others):
            spark.conf.unset(key)
    assert any(b"StreamJoinTask" in content for content in pickled)
    assert not any(b"word of nobody" in content for content in pickled)
    assert properties == [None, f"file:{tmp_path}/cp"]


def test_the_driver_listens_on_its_own_address_only(spark: SparkSession, feeds: tuple[Feed, Feed]) -> None:
    """Listeners of queries need PySpark's callback server, which must be local, as SECURITY.md promises."""
    stream_join(*(feed.stream() for feed in feeds), on=ON)
    server = vars(spark.sparkContext._gateway)["_callback_server"]
    assert server.server_socket.getsockname()[0] == "127.0.0.1"
    assert server.callback_server_parameters.auth_token is None, "as SECURITY.md says"


def test_no_batch_has_its_progress_converted_for_our_listener(
    spark: SparkSession, feeds: tuple[Feed, Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversion costs a third of the driver's CPU time for small batches."""
    converted: list[Any] = []
    monkeypatch.setattr(StreamingQueryProgress, "fromJObject", converted.append)
    feeds[0].add([(1, 1, 1.0, START)])
    feeds[1].add([(2, 1, 0.0, 2.0, START)])
    sink = Sink()
    run(stream_join(*(feed.stream() for feed in feeds), on=ON), tmp_path / "cp", sink)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert len(sink.rows()) == 1 and not converted


def test_tasks_know_how_many_batches_spark_retains(
    spark: SparkSession, feeds: tuple[Feed, Feed], tmp_path: Path
) -> None:
    assert int(spark.conf.get(RETAINED) or "") == RETAINED_BY_DEFAULT

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None and [*batches]
        yield pa.record_batch({"retained": [context.getLocalProperty(RETAINED)]})

    feeds[0].add([(1, 1, 1.0, START)])
    spark.conf.set(RETAINED, "7")
    try:
        sink = Sink()
        run(feeds[0].stream().mapInArrow(told, "retained string"), tmp_path / "cp", sink)
    finally:
        spark.conf.unset(RETAINED)
    assert sink.rows() == Counter(["('7',)"])


def test_progress(feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    draw, (left, right) = random.Random(1), feeds
    for _ in range(2):
        left.add(points(draw, 30))
        right.add(spans(draw, 20))
    query = run(stream_join(left.stream(), right.stream(), on=ON, name="hits"), tmp_path / "cp")
    told = [progress.observedMetrics["sparkext.hits"].asDict() for progress in query.recentProgress]
    matches = left.table().join(right.table(), F.expr(MATCH)).count()
    assert [one["left_rows"] for one in told] == [30, 30] and [one["right_rows"] for one in told] == [20, 20]
    assert sum(one["matches"] for one in told) == matches
    assert [one["state_rows"] for one in told] == [50, 100] and [one["units"] for one in told] == [2, 2]
    assert told[0]["segments"] == 3 and told[0]["state_bytes"] > 0
    assert (tmp_path / "cp" / "sparkext" / "hits" / "left" / "1-1").is_dir()
    told_of = report(query)
    assert [batch.matches for batch in told_of.of("hits")] == [one["matches"] for one in told]
    assert re.search(rf"^hits +60 +40 +{matches} +100 rows, \S+ \w+ +\d+ +2$", str(told_of), re.MULTILINE), told_of
    page = told_of._repr_html_()
    assert "hits: seconds a batch" in page and "batch 1</text>" in page


def test_operators_behind_it(spark: SparkSession, feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """A second stream join, and an aggregate with state of Spark's own."""
    draw, (left, right) = random.Random(2), feeds
    third = Feed(spark, tmp_path / "third", "x int, y int")
    for _ in range(3):
        left.add(points(draw, 20))
        right.add(spans(draw, 20))
        third.add([(draw.randrange(9), n) for n in range(5)])
    hits = stream_join(left.stream(), right.stream(), on=ON)
    out = stream_join(hits, third.stream(), on=[("k", "x")]).groupBy("k").agg(F.count("*"), F.sum("y"))
    found: dict[str, Counter[str]] = {}
    writer = out.writeStream.outputMode("complete").option("checkpointLocation", str(tmp_path / "cp"))
    query = writer.foreachBatch(lambda frame, batch: found.update(last=rows_of(frame))).start()
    query.processAllAvailable()
    query.stop()
    joined = left.table().join(right.table(), F.expr(MATCH)).join(third.table(), F.expr("k = x"))
    assert found["last"] == rows_of(joined.groupBy("k").agg(F.count("*"), F.sum("y")))


@pytest.mark.parametrize("how", ["inner", "left", "semi"])
def test_a_window_as_in_sparks_own_join(feeds: tuple[Feed, Feed], how: str, tmp_path: Path) -> None:
    """Both Spark's join and this one drop the same late rows.

    No key is null, because Spark drops rows with null keys before it uses their times for the watermark.
    """
    draw, (left, right) = random.Random(3), feeds
    for number in range(6):
        for feed, rows in ((left, points), (right, spans)):
            made = [*rows(draw, 15, number * 20), *rows(draw, 5, number * 20 - 50)]
            feed.add([row for row in made if row[1] is not None])
    one, other = left.stream().withWatermark("at", "10 seconds"), right.stream().withWatermark("time", "10 seconds")
    own, sinks = "k = d and at <= time + interval 15 seconds and time <= at + interval 25 seconds", (Sink(), Sink())
    out = stream_join(one, other, on=[("k", "d")], how=how, retain=("25 seconds", "15 seconds"))
    theirs = one.join(other, F.expr(own), how)
    assert bare(out.schema) == bare(theirs.schema)
    run(out, tmp_path / "ours", sinks[0])
    run(theirs, tmp_path / "spark's", sinks[1])
    assert sinks[0].rows() == sinks[1].rows()  # Spark may run an additional batch without rows
    assert sinks[0].rows().total() < left.table().join(right.table(), F.expr(own), how).count(), "some came late"
    if how == "left":
        assert len(sinks[0].batches) == 7, "in a batch without rows the watermark has passed the last ones"


def test_a_batch_that_fails_runs_again(spark: SparkSession, feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """A worker dies, the sink fails before and after it has stored the rows; then the query restarts."""
    draw, sink, (left, right) = random.Random(4), Sink(), feeds
    mark, schema = tmp_path / "mark", left.stream().schema

    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows == 17 and not mark.exists():
                mark.touch()
                os._exit(1)
            yield batch

    def failing(frame: DataFrame, batch: int) -> None:
        if batch == 2 and len(list(tmp_path.glob("failed *"))) < 2:
            if (tmp_path / "failed 0").exists():
                sink(frame, batch)
            (tmp_path / f"failed {len(list(tmp_path.glob('failed *')))}").touch()
            raise RuntimeError("no room")
        sink(frame, batch)

    for rows in (20, 17, 30, 9):
        left.add(points(draw, rows))
        right.add(spans(draw, rows))
    failures = []
    for _ in range(4):
        try:
            run(stream_join(left.stream().mapInArrow(dying, schema), right.stream(), on=ON), tmp_path / "cp", failing)
            break
        except StreamingQueryException as error:
            failures.append(str(error))
    assert len(failures) == 3 and mark.exists(), failures
    assert sink.rows() == rows_of(left.table().join(right.table(), F.expr(MATCH))) and len(sink.batches) == 4


def test_the_same_result_twice_in_a_query(feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    draw, sink, (left, right) = random.Random(5), Sink(), feeds
    for _ in range(2):
        left.add(points(draw, 20))
        right.add(spans(draw, 20))
    hits = stream_join(left.stream(), right.stream(), on=ON)
    run(hits.where("k > 3").unionAll(hits.where("k <= 3").coalesce(1)), tmp_path / "cp", sink)
    assert sink.rows() == rows_of(left.table().join(right.table(), F.expr(MATCH)).where("k is not null"))


def test_joins_that_are_alike(feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """They would share their state, so each needs a name."""
    draw, sink, (left, right) = random.Random(6), Sink(), feeds
    left.add(points(draw, 20))
    right.add(spans(draw, 20))

    def out(name: str | None) -> DataFrame:
        few, many = (left.stream().where(test) for test in ("k > 3", "k <= 3"))
        return stream_join(few, right.stream(), on=ON).unionAll(stream_join(many, right.stream(), on=ON, name=name))

    with pytest.raises(StreamingQueryException, match=r"give one of them another name\s+\(name=…\)"):
        run(out(None), tmp_path / "cp")
    run(out("the-others"), tmp_path / "another", sink)
    assert sink.rows() == rows_of(left.table().join(right.table(), F.expr(MATCH)).where("k is not null"))


def test_what_cannot_be_joined(spark: SparkSession, feeds: tuple[Feed, Feed]) -> None:
    left, right = feeds
    left.add([])
    right.add([])

    def problems(*sides: Any, **options: Any) -> str:
        with pytest.raises(SparkExtError) as caught:
            stream_join(*sides, **options)
        return str(caught.value)

    one, other = left.stream(), right.stream()
    assert "the right side is not a stream: to join a stream with a table, use pipelined_join" in problems(
        one, right.table(), on=ON
    )
    assert "the left side must be a Spark DataFrame, got list" in problems([], other, on=ON)
    assert "different sessions" in problems(
        one, other.sparkSession.newSession().readStream.format("rate").load(), on=ON
    )
    assert (
        "how='right' is not a join type of stream_join; expected one of inner, cross, left, leftouter, semi"
        in problems(one, other, on=ON, how="right")
    )
    on = [("price", "<", "low"), ("k", "<", "low"), ("id", "<", "high")]
    assert "on compares 3 columns of the left side" in problems(one, other, on=on)
    assert "a left join of streams requires retain" in problems(one, other, on=ON, how="left")
    assert "expected 'inner' for a join by a function" in problems(
        one, other, on=lambda a, b: a.k == b.d, how="semi", retain="1 hour"
    )
    assert "left column 'prices' does not exist; did you mean 'price'?" in problems(one, other, on=[("prices", "low")])
    told = problems(one, other, on=ON, retain="1 month", name="a/b")
    assert "months and years have no fixed length" in told and "name='a/b': expected at most 100 letters" in told
    assert "retain requires one column with a watermark on the left side, which has no such column" in problems(
        one, other, on=ON, retain="1 hour"
    )
    assert re.search(r"more than one column named 'id'", problems(one, left.stream(), on=[("price", "<", "price")]))


def test_a_batch_that_is_no_stream(feeds: tuple[Feed, Feed]) -> None:
    left, right = feeds
    left.add([])
    right.add([])
    with pytest.raises(AnalysisException, match="writeStream"):
        stream_join(left.stream(), right.stream(), on=ON).collect()
