"""Parquet scans in workers, with the extension, to an aggregate or to a sink that discards the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.cases.queries import tpch
from bench.cases.queries.end_to_end import Joins, Workload, read_tables, spark_joins, to_noop, workloads
from bench.engines.spark_session import make_look_changed, spark_session
from bench.harness import Bench, Case, Contestant, measure, report, seconds_of, step, verify
from sparkext.wording import format_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = """\
Measured: from listing the files and requesting the plan until Spark has every row. Cold: the files of the build sides
are made to look changed since the last run, so they are read and indexed again. Cached: the indexes of the last run are
reused.
All plans run in one session with Spark's defaults: adaptive execution, 200 shuffle partitions. A hinted plan has the
same hint on every build side. Only the hinted plan that is fastest in the warm-up is timed. Files are in the page
cache.
The noop sink reads no value of a row. The rows of sparkext stay in columns, so it copies no value for this sink.
scan.parquet writes all values.
The floor is the same scan with as many columns as the result, all from the probe side and some of them twice, and a
join without matches.
scan.first-query: the first query includes starting the workers and loading compiled kernels. Starting Spark is left
out.
Left out: starting Spark and, in the other cases, the workers; compilation; generating data. Processor time is not
shown, because other processes, the JVM and the workers, do the work."""

CACHED, COLD = "sparkext, indexes cached", "sparkext, cold"
FLOOR = "(floor: workers read the probe side, no join)"


def cases() -> list[Case]:
    """Return the cases: the workloads of `end_to_end`, a Parquet sink, and the first query of a session."""
    return [
        *(
            Case(f"scan.{name}", workload.description, partial(_run, workload), named=name == "parquet")
            for name, workload in {**workloads(), "parquet": _written()}.items()
        ),
        Case("scan.first-query", "the three joins as the first query of a new session", _run_first),
    ]


def _written() -> Workload:
    described = "lineitem, orders, supplier, part; to Parquet files"
    return replace(workloads()["three-joins"], description=described, sink=_to_parquet, answer=_fingerprint_of_files)


def _to_parquet(frame: DataFrame) -> None:
    with TemporaryDirectory() as folder:
        _write(frame, folder)


def _fingerprint_of_files(frame: DataFrame) -> object:
    from sparkext.cli.demo import compute_result_fingerprint

    with TemporaryDirectory() as folder:
        _write(frame, folder)
        return compute_result_fingerprint(frame.sparkSession.read.parquet(folder))


def _write(frame: DataFrame, folder: str) -> None:
    frame.write.mode("overwrite").parquet(folder)


def _run(workload: Workload, bench: Bench) -> None:
    from sparkext import configure

    joins, paths = workload.joins, tpch.tables(bench)
    with spark_session(bench.threads, configure, **{"spark.sparkext.mode": "hint"}) as spark:

        def plan(hint: str | None) -> DataFrame:
            return spark_joins(read_tables(bench, spark, workload.columns, joins), joins, hint)

        def pipelined(cold: bool) -> DataFrame:
            if cold:
                for name, _, _ in joins:
                    make_look_changed(paths[name])
            return plan("pipelined_join")

        _assert_fused(pipelined(cold=False), len(joins))
        contestants = [
            workload.contestant(COLD, lambda: pipelined(cold=True), ours=True),
            workload.contestant(CACHED, lambda: pipelined(cold=False), ours=True),
            *workload.sparks(plan),
        ]
        if workload.sink is to_noop:
            width = len(plan(None).columns)
            contestants.append(
                Contestant(FLOOR, lambda: to_noop(_bare(bench, spark, workload, width)), lambda: None, floor=True)
            )
        verify(contestants)
        rows = read_tables(bench, spark, workload.columns, joins)["lineitem"].count()
        print(f"{rows:,} rows probe; all plans agree")
        report(bench, measure(bench, contestants), rows, cpu=False)


def _bare(bench: Bench, spark: SparkSession, workload: Workload, width: int) -> DataFrame:
    """Return a plan without matches: workers read the probe side and emit `width` of its columns, some twice."""
    from pyspark.sql import functions as F

    tables = read_tables(bench, spark, workload.columns, workload.joins[:1])
    probe = tables["lineitem"]
    build, probe_key, build_key = workload.joins[0]
    none = tables[build].where(F.col(build_key) < 0).select(build_key)
    columns = [F.col(probe_key).alias("key")]
    columns += [F.col(probe.columns[number % len(probe.columns)]).alias(f"c{number}") for number in range(1, width)]
    repeated = probe.select(*columns)
    bare = repeated.join(none.hint("pipelined_join"), repeated["key"] == none[build_key], "left_anti")
    _assert_fused(bare, 1)
    return bare


def _run_first(bench: Bench) -> None:
    """Time the first query of new sessions, each in its own process, and the following queries."""
    workload = workloads()["three-joins"]
    table = []
    for name, hint in (("sparkext", "pipelined_join"), ("Spark, broadcast hints", "broadcast")):
        each = []
        for number in range(1, bench.runs + 1):
            with step(f"run {number} of {bench.runs}: {name}"), ProcessPoolExecutor(1, get_context("spawn")) as pool:
                each.append(pool.submit(_in_new_session, bench, workload.columns, workload.joins, hint).result())
        first, warm = (median(times) for times in zip(*each, strict=True))
        table.append([name, f"{first:.2f}", f"{warm:.2f}", f"{first - warm:.2f}"])
        bench.record(
            contestant=name,
            ours=hint == "pipelined_join",
            first=[one[0] for one in each],
            warm=[one[1] for one in each],
        )
    print("\n" + format_table(["plan", "first query s", "warm s", "more s"], table) + "\n", flush=True)


def _in_new_session(bench: Bench, columns: Mapping[str, Sequence[str]], joins: Joins, hint: str) -> tuple[float, float]:
    """Start Spark; return the seconds of its first query, and of the fastest of the next five."""
    from sparkext import configure

    def run() -> None:
        to_noop(spark_joins(read_tables(bench, spark, columns, joins), joins, hint))

    with spark_session(bench.threads, configure, **{"spark.sparkext.mode": "hint"}) as spark:
        return seconds_of(run), min(seconds_of(run) for _ in range(5))


def _assert_fused(frame: DataFrame, joins: int) -> None:
    plan = str(frame._jdf.queryExecution().executedPlan())  # type: ignore[operator]
    if plan.count("(fused)") != joins or "scan=fused" not in plan:
        raise AssertionError(f"workers were to read all tables:\n{plan}")
