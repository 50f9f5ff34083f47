"""Tables in an S3 bucket: Spark's S3A connector and the workers' own reader give the same rows.

Checkpoints of stream joins are in the bucket, too, and a query is resumed from one.
"""

from __future__ import annotations

import logging
import random
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from unittest import mock

import boto3
import pytest
from moto.server import ThreadedMotoServer
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from sparkext import pipelined_join, scan_parquet
from sparkext.errors import InvalidScanError
from sparkext.scans import resolved_scan
from sparkext.spark import extension
from sparkext.streaming.state.micro_batch import CHECKPOINT, SECRETS
from sparkext.streams import stream_asof_join, stream_join
from tests.support.feeds import MATCH, ON, POINTS, SPANS, Feed, Sink, points, run, spans
from tests.support.rows import rows_of
from tests.support.s3a import s3a_settings
from tests.support.sessions import start_session

SECRET = "word-of-nobody"
EVENTS = Path(mkdtemp())


def session(endpoint: str) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sparkext.mode": "hint",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": EVENTS.as_uri(),
        "spark.eventLog.compress": "false",
        **s3a_settings(endpoint, "who", SECRET),
    }
    return start_session("local[2]", settings, sparkext.configure)


def plan_of(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]


def joined(spark: SparkSession) -> DataFrame:
    facts, dims = spark.read.parquet("s3a://shelf/some facts"), spark.read.parquet("s3a://shelf/dims")
    return facts.join(dims.hint("pipelined_join"), facts.k == dims.dk)


def check(spark: SparkSession) -> None:
    spark.range(20_000).selectExpr("id AS k", "id % 3 AS g", "concat('s', id) AS s").write.partitionBy("g").parquet(
        "s3a://shelf/some facts"
    )
    spark.range(1000).selectExpr("id * 3 AS dk", "concat('n', id) AS n").write.parquet("s3a://shelf/dims")

    spark.conf.set("spark.sparkext.mode", "off")
    expected = rows_of(joined(spark))
    assert len(expected) == 1000
    spark.conf.set("spark.sparkext.mode", "hint")
    planned = joined(spark)
    assert "scan=fused [k, s, g]" in plan_of(planned) and "(fused)" in plan_of(planned), plan_of(planned)
    assert SECRET not in plan_of(planned)
    assert rows_of(planned) == expected
    assert "workers read" in str(sparkext.report(planned))

    # A setting of this bucket alone, which workers do not support.
    spark.conf.set("fs.s3a.bucket.shelf.requester.pays.enabled", "true")
    left = joined(spark)
    reason = "[BUCKET] bucket shelf: [S3A_SETTING] fs.s3a.requester.pays.enabled is set"
    assert f"scan=columns from Spark ({reason})" in plan_of(left), plan_of(left)
    assert rows_of(left) == expected
    spark.conf.unset("fs.s3a.bucket.shelf.requester.pays.enabled")

    # After a change, the table is a different build side.
    spark.range(7).selectExpr("id * 3 AS dk", "concat('new', id) AS n").write.mode("overwrite").parquet(
        "s3a://shelf/dims"
    )
    assert {row.n for row in joined(spark).collect()} == {f"new{number}" for number in range(7)}

    check_without_the_extension(spark)
    check_that_lost_files_are_an_error(spark)


def check_without_the_extension(spark: SparkSession) -> None:
    expected = rows_of(joined(spark))
    without = partial(mock.patch.object, attribute="has_extension", return_value=False)
    with without(resolved_scan), without(extension):
        facts, dims = scan_parquet(spark, "s3a://shelf/some facts"), scan_parquet(spark, "s3a://shelf/dims")
        by_transform = facts.transform(pipelined_join(dims, on=[("k", "dk")]))
        assert "MapInArrow" in plan_of(by_transform) and "FileScan" not in plan_of(by_transform)
        assert rows_of(by_transform) == expected
        spark.conf.set("fs.s3a.proxy.host", "somewhere")
        with pytest.raises(InvalidScanError, match=r"bucket shelf: fs\.s3a\.proxy\.host is set"):
            scan_parquet(spark, "s3a://shelf/dims")
        spark.conf.unset("fs.s3a.proxy.host")


def check_streams(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    draw, sink, nearest, folder = random.Random(1), Sink(), Sink(), Path(mkdtemp())
    left, right = Feed(spark, folder / "points", POINTS), Feed(spark, folder / "spans", SPANS)
    for _ in range(2):
        left.add(points(draw, 60))
        right.add(spans(draw, 60))
        run(stream_join(left.stream(), right.stream(), on=ON, name="hits"), "s3a://shelf/a query #1/hits", sink)
    assert sink.rows() == rows_of(left.table().join(right.table(), F.expr(MATCH)))
    assert len(sink.batches) == 2 and sink.rows().total() > 50
    store = boto3.client("s3", endpoint_url=ENDPOINT, aws_access_key_id="who", aws_secret_access_key=SECRET)
    kept = {entry["Key"] for entry in store.list_objects_v2(Bucket="shelf")["Contents"]}
    assert {f"a query #1/hits/sparkext/hits/right/{n}-{n}/0.segment" for n in range(2)} <= kept, kept

    one, other = left.stream().withWatermark("at", "1 second"), right.stream().withWatermark("time", "1 second")
    run(stream_asof_join(one, other, on=("at", "time")), "s3a://shelf/nearest", nearest)
    assert nearest.rows().total() > 50


def check_that_lost_files_are_an_error(spark: SparkSession) -> None:
    planned = joined(spark)
    plan_of(planned)
    store = boto3.client("s3", endpoint_url=ENDPOINT, aws_access_key_id="who", aws_secret_access_key=SECRET)
    for entry in store.list_objects_v2(Bucket="shelf", Prefix="some facts/")["Contents"]:
        store.delete_object(Bucket="shelf", Key=entry["Key"])
    with pytest.raises(Py4JJavaError, match=r"FILE_NOT_EXIST"):
        planned.collect()


logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
ENDPOINT = "http://{}:{}".format(*server.get_host_and_port())
boto3.client(
    "s3", endpoint_url=ENDPOINT, aws_access_key_id="who", aws_secret_access_key=SECRET, region_name="us-east-1"
).create_bucket(Bucket="shelf")
spark = session(ENDPOINT)
try:
    spark.sparkContext.setLogLevel("ERROR")
    check(spark)
    check_streams(spark)
finally:
    spark.stop()
    server.stop()
# Access keys are a property of the jobs of streams, which Spark's event log redacts.
told = "".join(path.read_text() for path in EVENTS.rglob("*") if path.is_file())
assert f'"{SECRETS}":"*********(redacted)"' in told and CHECKPOINT in told
assert SECRET not in told
print("all is well")
