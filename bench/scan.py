"""Scans that workers do themselves: Parquet in, a sink that discards the rows or an aggregate, with the extension."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bench.end_to_end import Workload, read_tables, spark_joins, workloads
from bench.harness import Bench, Case, Contestant, measure, report, verify
from bench.spark_session import make_look_changed, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTES = """\
Measured: from listing the files and asking for the plan until Spark has every row. Cold: the build sides' files look
changed since the last run, so that they are read and indexed anew; cached: their indexes are those of the last run. All
plans run in one session with Spark's defaults: adaptive execution, 200 shuffle partitions. Files are in the page cache.
Left out: starting Spark and the workers, compilation, generating data. Processor time is not shown: JVM and workers do
the work."""

CACHED, COLD = "sparkext, indexes cached", "sparkext, cold"


def cases() -> list[Case]:
    """The workloads of the whole way through Spark."""
    return [
        Case(f"scan.{name}", workload.description, partial(_run, workload)) for name, workload in workloads().items()
    ]


def _run(workload: Workload, bench: Bench) -> None:
    from sparkext import configure
    from sparkext.tpch import ensure_tables

    joins = workload.joins
    folder = ensure_tables(bench.scale_factor, bench.data)
    with spark_session(bench.threads, configure, **{"spark.sparkext.mode": "hint"}) as spark:

        def plan(hint: str | None) -> DataFrame:
            return spark_joins(read_tables(bench, spark, workload.columns, joins), joins, hint)

        def ours(cold: bool) -> DataFrame:
            if cold:
                for name, _, _ in joins:
                    make_look_changed(folder / f"{name}.parquet")
            return plan("pipelined_join")

        def contestant(name: str, frame: Callable[[], DataFrame], is_ours: bool = False) -> Contestant:
            return Contestant(name, lambda: workload.sink(frame()), lambda: workload.answer(frame()), ours=is_ours)

        _assert_fused(ours(cold=False), len(joins))
        contestants = [
            contestant(COLD, lambda: ours(cold=True), is_ours=True),
            contestant(CACHED, lambda: ours(cold=False), is_ours=True),
            contestant("Spark, default plan", lambda: plan(None)),
            contestant("Spark, broadcast hints", lambda: plan("broadcast")),
        ]
        verify(contestants)
        rows = read_tables(bench, spark, workload.columns, joins)["lineitem"].count()
        print(f"{rows:,} rows probe; all plans agree")
        report(bench, measure(contestants, bench.runs), rows, cpu=False)


def _assert_fused(frame: DataFrame, joins: int) -> None:
    plan = str(frame._jdf.queryExecution().executedPlan())  # type: ignore[operator]
    if plan.count("(fused)") != joins or "scan=fused" not in plan:
        raise AssertionError(f"workers were to read all tables:\n{plan}")
