"""A query whose checkpoint lies in a bucket: it stops, goes on in another session, and gives every row once."""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkext.streams import stream_asof_join, stream_join
from tests.s3a import s3a_settings
from tests.streams.feeds import MATCH, ON, POINTS, SPANS, Feed, Sink, points, rows_of, run, spans

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
endpoint = "http://{}:{}".format(*server.get_host_and_port())
store = boto3.client(
    "s3", endpoint_url=endpoint, aws_access_key_id="who", aws_secret_access_key="word", region_name="us-east-1"
)
store.create_bucket(Bucket="shelf")
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
for key, value in {**s3a_settings(endpoint, "who", "word"), "spark.sql.shuffle.partitions": "2"}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
try:
    spark.sparkContext.setLogLevel("ERROR")
    draw, sink, folder = random.Random(1), Sink(), Path(sys.argv[1])
    left, right = Feed(spark, folder / "points", POINTS), Feed(spark, folder / "spans", SPANS)
    for _ in range(2):
        for _ in range(2):
            left.add(points(draw, 30))
            right.add(spans(draw, 30))
        run(stream_join(left.stream(), right.stream(), on=ON, name="hits"), "s3a://shelf/a query/hits", sink)
    assert sink.rows() == rows_of(left.table().join(right.table(), F.expr(MATCH)))
    assert len(sink.batches) == 4 and sink.rows().total() > 50
    kept = {entry["Key"] for entry in store.list_objects_v2(Bucket="shelf")["Contents"]}
    assert {f"a query/hits/sparkext/hits/right/{n}-{n}/0.segment" for n in range(4)} <= kept, kept

    one, other = left.stream().withWatermark("at", "1 second"), right.stream().withWatermark("time", "1 second")
    nearest = Sink()
    run(stream_asof_join(one, other, on=("at", "time")), "s3a://shelf/nearest", nearest)
    assert nearest.rows().total() > 50
finally:
    spark.stop()
    server.stop()
print("all is well")
