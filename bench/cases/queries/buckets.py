"""Tables in a bucket of an object store that answers after 30 ms: time and requests of our workers and of Spark."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.cases.queries import tpch
from bench.cases.queries.end_to_end import SUMMED
from bench.data.chains import Answer, Chain
from bench.engines.slow_store import SlowStore, slow_store
from bench.engines.spark_session import spark_session
from bench.engines.views import Views
from bench.harness import Bench, Case, measure, report, same, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES = """\
Measured: from listing the tables until the result of the query, three joins of TPC-H under a count and four sums, is
there. Each run plans and executes the query again. The tables are Parquet files in a bucket of a store on this machine,
which implements S3's protocol and answers each request after 30 ms.
Before each run, all objects are made to look changed, so that neither an index nor any data that the connector has
cached is reused. Only in the row marked "kept", nothing has changed since the last run.
Spark's contestants are its default plan and its plan with broadcast hints. They read through S3A with its default
settings."""

_SECONDS = 0.03


def cases() -> list[Case]:
    """Return the only case: three joins of TPC-H."""
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
    from tests.support.s3a import s3a_settings

    chain = Chain("lineitem", JOINS, SUMMED)
    with TemporaryDirectory(dir=bench.data) as folder:
        files = _placed(bench, chain, Path(folder))
        with slow_store(Path(folder), _SECONDS) as store:
            settings = s3a_settings(store.endpoint, "who", "word")
            with spark_session(bench.threads, configure, **settings) as spark:
                _compare(bench, spark, chain, store, files)


def _compare(bench: Bench, spark: SparkSession, chain: Chain, store: SlowStore, files: dict[str, list[Path]]) -> None:
    requests: dict[str, Counter[str]] = {}
    views = Views(spark, lambda table: spark.read.parquet(f"s3a://shelf/{table}"), files)
    views.assert_pipelined(chain.sql("PIPELINED_JOIN"), mode="hint")

    def ask(name: str, hint: str, cold: bool) -> Answer:
        store.asked()
        row = views.row(chain.sql(hint), cold, mode="hint")
        requests[name] = store.asked()
        return row

    contestants = [
        same(name, partial(ask, name, hint, cold), ours=hint == "PIPELINED_JOIN")
        for name, hint, cold in (
            ("pipelined, cold", "PIPELINED_JOIN", True),
            ("pipelined, kept", "PIPELINED_JOIN", False),
            ("Spark's broadcast plan", "BROADCAST", True),
            ("Spark's default plan", "", True),
        )
    ]
    verify(contestants)
    rows = spark.table("lineitem").count()
    report(bench, measure(bench, contestants), rows, cpu=False)
    for name, asked in requests.items():
        size = asked.pop("bytes")
        print(f"  {name}: {sum(asked.values())} requests ({dict(asked)}), {size / 1e6:.0f} MB")
        bench.record(part="requests", contestant=name, requests=sum(asked.values()), bytes=size)


def _placed(bench: Bench, chain: Chain, folder: Path) -> dict[str, list[Path]]:
    """Link the files of the tables into the folder that the store serves; return the links by table."""
    sources = tpch.tables(bench)
    files = {table: [folder / table / "part-0.parquet"] for table in chain.tables}
    for table, [file] in files.items():
        file.parent.mkdir()
        file.hardlink_to(sources[table])
    return files
