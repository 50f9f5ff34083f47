"""Joins of which neither side lies whole on a node: cells beside Spark's rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bench.end_to_end import pipelined, read_tables, spark_joins, sums, to_noop
from bench.harness import Bench, Case, Contestant, measure, report, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = """\
Measured: from asking for the plan until Spark has every row. Indexes that lie whole on a node are forbidden to all:
sparkext partitions the join, and Spark's plans are its default without broadcasts, a sort-merge join and a shuffled
hash join by hint; of the hinted plans, the one that was fastest in the warm-up is timed. All have 16 partitions.
Left out: starting Spark, compilation, generating data. Processor time is not shown: JVM and workers do the work."""

_SLOTS = 16
_JOINS = (("orders", "l_orderkey", "o_orderkey"),)
_SETTINGS = {"spark.sql.shuffle.partitions": str(_SLOTS), "spark.sql.autoBroadcastJoinThreshold": "-1"}


_sums = partial(sums, names=("l_quantity", "l_partkey", "o_custkey"))


def cases() -> list[Case]:
    """A join under a count and sums, and to a sink that drops its rows."""
    title = "lineitem, orders, both partitioned by key; "
    return [
        Case("exchange.aggregate", title + "a count and sums", partial(_run, _sums), named=True),
        Case("exchange.join", title + "to a noop sink", partial(_run, to_noop), named=True),
    ]


def _run(sink: Callable[[DataFrame], object], bench: Bench) -> None:
    from bench.spark_session import spark_session

    with spark_session(bench.threads, **_SETTINGS) as spark:
        _compare(bench, spark, sink)


def _compare(bench: Bench, spark: SparkSession, sink: Callable[[DataFrame], object]) -> None:
    from sparkext.cli.demo import COLUMNS

    tables = read_tables(bench, spark, COLUMNS, _JOINS)
    rows = tables["lineitem"].count()

    def contestant(name: str, plan: Callable[[], DataFrame], ours: bool = False, group: str = "") -> Contestant:
        return Contestant(name, lambda: sink(plan()), lambda: _sums(plan()), ours=ours, group=group)

    contestants = [
        contestant("sparkext, partitioned", lambda: pipelined(tables, _JOINS, partitioned=True), ours=True),
        contestant("Spark, default plan", lambda: spark_joins(tables, _JOINS)),
        *(
            contestant(f"Spark, {hint} hint", partial(spark_joins, tables, _JOINS, hint), group="hinted")
            for hint in ("merge", "shuffle_hash")
        ),
    ]
    verify(contestants)
    report(bench, measure(bench, contestants), rows, cpu=False)
