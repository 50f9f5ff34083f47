"""Tables in a bucket whose store takes 30 ms to answer: what workers ask for, and what Spark's reader does."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from bench.chains import Answer, Chain
from bench.end_to_end import SUMMED
from bench.harness import Bench, Case, measure, report, same, step, verify
from bench.slow_store import SlowStore, slow_store
from bench.spark_session import assert_pipelined, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES = """\
Measured: three joins of TPC-H under a count and four sums, over Parquet files in a bucket of an S3 emulator on this
machine, which waits 30 ms before it answers a request. Plans are made and run in each run. All objects are copied onto
themselves before each, so no index is found again ("cold"); the row marked "kept" finds them. Spark's own plans are its
default and that with broadcast hints, read through S3A as it is set by default."""

_SECONDS = 0.03
_BUCKET = "shelf"
_KEY = "who"
_SECRET = "word"


def cases() -> list[Case]:
    """The three joins."""
    return [
        Case(
            "buckets.three-joins",
            "lineitem, orders, supplier, part in a bucket, 30 ms a request; a count and four sums",
            _run,
            named=True,
        )
    ]


def _run(bench: Bench) -> None:
    from sparkext import configure
    from sparkext.cli.demo import JOINS
    from tests.s3a import s3a_settings

    chain = Chain("lineitem", [(table, probe, build) for table, probe, build in JOINS], SUMMED)
    with slow_store(_SECONDS) as store:
        _fill(bench, chain, store)
        settings = s3a_settings(store.endpoint, _KEY, _SECRET)
        with spark_session(bench.threads, configure, **settings) as spark:
            _compare(bench, spark, chain, store)


def _compare(bench: Bench, spark: SparkSession, chain: Chain, store: SlowStore) -> None:
    requests: dict[str, Counter[str]] = {}

    def ask(name: str, hint: str, cold: bool) -> Answer:
        if cold:
            _make_look_changed(chain, store)
        spark.conf.set("spark.sparkext.mode", "hint")
        for table in chain.tables:
            spark.read.parquet(f"s3a://{_BUCKET}/{table}").createOrReplaceTempView(table)
        store.asked()
        df = spark.sql(chain.sql(hint))
        if hint == "PIPELINED_JOIN":
            assert_pipelined(df)
        [row] = df.collect()
        requests[name] = store.asked()
        return tuple(map(int, row))

    contestants = [
        same(name, partial(ask, name, hint, cold), ours=hint == "PIPELINED_JOIN")
        for name, hint, cold in (
            ("pipelined, cold", "PIPELINED_JOIN", True),
            ("pipelined, kept", "PIPELINED_JOIN", False),
            ("Spark's broadcast plan", "BROADCAST", False),
            ("Spark's default plan", "", False),
        )
    ]
    verify(contestants)
    rows = spark.table("lineitem").count()
    report(bench, measure(bench, contestants), rows, cpu=False)
    for name, asked in requests.items():
        size = asked.pop("bytes")
        print(f"  {name}: {sum(asked.values())} requests ({dict(asked)}), {size / 1e6:.0f} MB")
        bench.record(part="requests", contestant=name, requests=sum(asked.values()), bytes=size)


def _fill(bench: Bench, chain: Chain, store: SlowStore) -> None:
    from sparkext.cli.tpch import ensure_tables

    folder, client = ensure_tables(bench.scale_factor, bench.data), _client(store)
    client.create_bucket(Bucket=_BUCKET)
    for table in chain.tables:
        with step(f"storing {table}"):
            client.upload_file(str(folder / f"{table}.parquet"), _BUCKET, f"{table}/part-0.parquet")


def _make_look_changed(chain: Chain, store: SlowStore) -> None:
    """Give every object another time, so that no index of it is found again."""
    client = _client(store)
    for table in chain.tables:
        key = f"{table}/part-0.parquet"
        client.copy_object(
            Bucket=_BUCKET, Key=key, CopySource=f"{_BUCKET}/{key}", MetadataDirective="REPLACE", Metadata={"again": ""}
        )


def _client(store: SlowStore):  # type: ignore[no-untyped-def]
    import boto3

    keys = {"aws_access_key_id": _KEY, "aws_secret_access_key": _SECRET}
    return boto3.client("s3", endpoint_url=store.endpoint, region_name="us-east-1", **keys)
