"""The complete path through Spark: Parquet files, `mapInArrow`, and an aggregate or a sink that discards the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cases.queries import tpch
from bench.harness import Bench, Case, Contestant, measure, report, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = """\
Measured: from requesting the plan until Spark has every row. For sparkext this includes the work of the transforms:
running, collecting and publishing the build sides, and building their indexes. With scan_parquet it includes listing
the files, and reading and indexing them again. Files are in the page cache.
Spark's plans use its defaults: adaptive execution, 200 shuffle partitions. A hinted plan has the same hint on every
build side. Only the hinted plan that is fastest in the warm-up is timed.
The floor sends the probe side alone through an empty mapInArrow: the cost of crossing into Python and back.
Left out: starting Spark, compilation, generating data. Processor time is not shown, because other processes, the JVM
and the workers, do the work."""

OURS = "sparkext, rows from Spark"
SCANNED = "sparkext, scan_parquet"
FLOOR = "(floor: mapInArrow, no join)"
HINTS = ("broadcast", "shuffle_hash", "merge")
AGGREGATE_COLUMNS = {
    "lineitem": ("l_orderkey", "l_partkey", "l_suppkey", "l_quantity"),
    "orders": ("o_orderkey", "o_custkey"),
    "supplier": ("s_suppkey", "s_nationkey"),
    "part": ("p_partkey", "p_size"),
}
SUMMED = ("l_quantity", "o_custkey", "s_nationkey", "p_size")

Tables = Mapping[str, "DataFrame"]
Joins = Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Workload:
    """Tables and joins of one case; `answer` is compared between contestants, and `sink` consumes the timed rows."""

    description: str
    columns: Mapping[str, Sequence[str]]
    joins: Joins
    answer: Callable[[DataFrame], object]
    sink: Callable[[DataFrame], object]

    def contestant(self, name: str, plan: Callable[[], DataFrame], ours: bool = False, group: str = "") -> Contestant:
        """Return a contestant that plans its query anew in each run."""
        return Contestant(name, lambda: self.sink(plan()), lambda: self.answer(plan()), ours, group)

    def sparks(self, plan: Callable[[str | None], DataFrame], hints: Sequence[str] = HINTS) -> list[Contestant]:
        """Return Spark's default plan, and a plan for each hint, of which only the fastest is timed; `plan` by hint."""
        hinted = [self.contestant(f"Spark, {hint} hints", partial(plan, hint), group="hinted") for hint in hints]
        return [self.contestant("Spark, default plan", partial(plan, None)), *hinted]


def workloads() -> dict[str, Workload]:
    """Return the workloads: one join, three joins, and three joins under an aggregate."""
    from sparkext.cli.demo import COLUMNS, JOINS, compute_result_fingerprint

    aggregate = "the same three joins; one row of a count and four sums"
    return {
        "one-join": Workload(
            "lineitem, orders; to a noop sink", COLUMNS, JOINS[:1], compute_result_fingerprint, to_noop
        ),
        "three-joins": Workload(
            "lineitem, orders, supplier, part; to a noop sink", COLUMNS, JOINS, compute_result_fingerprint, to_noop
        ),
        "aggregate": Workload(aggregate, AGGREGATE_COLUMNS, JOINS, sums, sums),
    }


def cases() -> list[Case]:
    """Return one case for every workload."""
    return [
        Case(f"end_to_end.{name}", workload.description, partial(_run, workload), named=name != "three-joins")
        for name, workload in workloads().items()
    ]


def to_noop(frame: DataFrame) -> None:
    """Compute every row, and discard it."""
    frame.write.format("noop").mode("overwrite").save()


def sums(frame: DataFrame, names: Sequence[str] = SUMMED) -> object:
    """Return the number of rows, and the sums of some of their columns."""
    from pyspark.sql import functions as F

    [row] = frame.agg(F.count("*"), *(F.sum(name) for name in names)).collect()
    return tuple(row)


def _run(workload: Workload, bench: Bench) -> None:
    from bench.engines.spark_session import spark_session

    joins = workload.joins
    with spark_session(bench.threads) as spark:
        tables = read_tables(bench, spark, workload.columns, joins)
        rows = tables["lineitem"].count()
        contestants = [
            workload.contestant(OURS, lambda: pipelined(tables, joins), ours=True),
            workload.contestant(SCANNED, lambda: pipelined(_scanned(bench, spark, workload), joins), ours=True),
            *workload.sparks(partial(spark_joins, tables, joins)),
            Contestant(FLOOR, lambda: to_noop(_crossing(tables["lineitem"])), lambda: None, floor=True),
        ]
        verify(contestants)
        print(f"{rows:,} rows probe; all plans agree")
        report(bench, measure(bench, contestants), rows, cpu=False)


def read_tables(bench: Bench, spark: SparkSession, columns: Mapping[str, Sequence[str]], joins: Joins) -> Tables:
    """Return the tables as DataFrames over their Parquet files, listed anew."""
    paths = _paths(bench, joins)
    return {name: spark.read.parquet(str(path)).select(*columns[name]) for name, path in paths.items()}


def _paths(bench: Bench, joins: Joins) -> dict[str, Path]:
    tables = tpch.tables(bench)
    return {name: tables[name] for name in ["lineitem", *(name for name, _, _ in joins)]}


def _scanned(bench: Bench, spark: SparkSession, workload: Workload) -> Tables:
    """Return the tables as DataFrames that workers scan, with files that look changed: no cached index is used."""
    from bench.engines.spark_session import make_look_changed
    from sparkext import scan_parquet

    paths = _paths(bench, workload.joins)
    for path in paths.values():
        make_look_changed(path)
    return {name: scan_parquet(spark, path, columns=workload.columns[name]) for name, path in paths.items()}


def spark_joins(tables: Tables, joins: Joins, hint: str | None = None) -> DataFrame:
    """Join with `DataFrame.join`, with `hint`, if given, on every build side."""
    out = tables["lineitem"]
    for name, probe_key, build_key in joins:
        build = tables[name] if hint is None else tables[name].hint(hint)
        out = out.join(build, out[probe_key] == build[build_key])
    return out


def _crossing(probe: DataFrame) -> DataFrame:
    """Send the probe side through a function that does nothing: rows to Arrow, to Python and back to rows."""
    return probe.mapInArrow(lambda batches: batches, probe.schema)


def pipelined(tables: Tables, joins: Joins, partitioned: bool | None = None) -> DataFrame:
    """Join with `pipelined_join`."""
    from sparkext import pipelined_join

    out = tables["lineitem"]
    for name, probe_key, build_key in joins:
        out = out.transform(pipelined_join(tables[name], on=[(probe_key, build_key)], partitioned=partitioned))
    return out
