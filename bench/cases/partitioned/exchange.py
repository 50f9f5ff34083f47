"""Partitioned joins, with no replicated side, compared with Spark's own shuffles: sizes, and hot keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.cases.kernels.scaling import FACTORS, grow
from bench.cases.queries import tpch
from bench.cases.queries.comparison import DEFAULT, SparkQueries, timed
from bench.cases.queries.end_to_end import Workload, pipelined, read_tables, spark_joins, sums, to_noop
from bench.data.generated import in_files, star, written
from bench.engines.spark_session import with_settings
from bench.engines.views import Views
from bench.harness import Bench, Case, Contestant, WrongAnswerError, measure, report, same, verify
from sparkext.wording import format_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = """\
Measured: from requesting the plan until Spark has every row. No contestant may replicate a build side on every node,
except Spark's default plans in exchange.queries. sparkext partitions the joins. Spark's contestants are its default
plan without broadcasts, and a sort-merge join and a shuffled hash join by hint. Only the hinted plan that is fastest in
the warm-up is timed. All joins have 16 partitions, except in exchange.growth.
exchange.lineitem: the exchanged rows are aggregated to sums, maxima and counts of all columns, because any sink would
cost more than the exchange. sparkext sends lineitem as the probe side of a left join with one row. The same query
without an exchange is timed as well. The difference of both times is the cost of the exchange alone.
exchange.zipf, exchange.outer: the keys of both sides are drawn with probabilities of 1 / rank^0.9, so one key has half
of all pairs and a twentieth of the rows. Spark's adaptive skew join is tried with its default settings, and with
settings that split every partition of more than twice the median.
exchange.costs: a quarter of these rows, with conditions that make pairs expensive. "planned" and "took" are the
estimated and the measured seconds of all partitions together, in a first and in a second run. The second run is
planned with the measured costs of the first. Spark evaluates conditions on texts above the join. These cases therefore
have the same join, and only its very first run is planned with unit costs.
Left out: starting Spark, compilation, generating data. Processor time is not shown, because other processes, the JVM
and the workers, do the work."""

_PARTITIONS = 16
_JOINS = (("orders", "l_orderkey", "o_orderkey"),)
_NO_BROADCASTS = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
_SETTINGS = {"spark.sql.shuffle.partitions": str(_PARTITIONS), **_NO_BROADCASTS}
_SPLIT = {
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "2",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "64k",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64k",
    "spark.sql.adaptive.forceOptimizeSkewedJoin": "true",
}
_GROWTH_ROWS = 2_000_000
_KEYS = 100_000
_PROBE_ROWS = 800_000
_EXPONENT = 0.9
_HOT_HINT = "/*+ PIPELINED_JOIN(b, 'partitioned=always') */"
_COSTLY = {
    "none": "",
    "of numbers": "AND v * 3 + w > abs(v - w)",
    "of texts": "AND concat(v, '-', w) LIKE '%7-%'",
    "of longer texts": "AND repeat(concat(v, '-', w), 10) LIKE '%7-%3%'",
}

_sums = partial(sums, names=("l_quantity", "l_partkey", "o_custkey"))


def cases() -> list[Case]:
    """Return the cases: an exchange alone; joins under an aggregate, to a sink, without the extension; hot keys."""
    title = "lineitem, orders, both partitioned by key; "
    return [
        Case(
            "exchange.lineitem",
            "lineitem with 14 columns, sent to 16 partitions; an aggregate of each",
            _run_sent,
            named=True,
        ),
        Case("exchange.aggregate", title + "a count and sums", partial(_run, _sums), named=True),
        Case("exchange.join", title + "to a noop sink", partial(_run, to_noop), named=True),
        Case("exchange.transform", title + "a count and sums, without the extension", _run_transform, named=True),
        Case("exchange.queries", "TPC-H's 22 queries, every join partitioned", _run_queries, named=True),
        Case(
            "exchange.growth",
            "how the time of a partitioned join grows: data ×1 to ×8, partitions ×1 to ×8",
            _run_growth,
            scaled=False,
            named=True,
        ),
        Case("exchange.zipf", "Zipf keys on both sides; a count and sums", partial(_run_hot, "inner"), named=True),
        Case(
            "exchange.costs",
            "what partitions are planned to take, and take, as conditions make pairs dear",
            _run_costs,
            named=True,
        ),
        Case("exchange.outer", "a full outer join of the same", partial(_run_hot, "full"), named=True),
    ]


@contextmanager
def _session(bench: Bench) -> Iterator[SparkSession]:
    import sparkext
    from bench.engines.spark_session import spark_session

    with spark_session(bench.threads, sparkext.configure, **_SETTINGS, **{"spark.sparkext.mode": "hint"}) as spark:
        yield spark


def _run_sent(bench: Bench) -> None:
    with _session(bench) as spark:
        rows = spark.read.parquet(str(tpch.tables(bench)["lineitem"]))
        names = rows.columns[:14]
        rows.select(*names).createOrReplaceTempView("sent")
        spark.range(1).selectExpr("id AS k").createOrReplaceTempView("one")
        ways = {"string": "count", "date": "max"}
        of_each = [f"{ways.get(kind, 'sum')}({name})" for name, kind in rows.dtypes[:14]]
        written: dict[str, int] = {}

        def contestant(name: str, sender: str, ours: bool = False, floor: bool = False) -> Contestant:
            def run() -> object:
                [row] = spark.sql(f"SELECT count(*), {', '.join(of_each)} FROM ({sender})").collect()
                written[name] = sum(stage.shuffleWriteBytes() for stage in _stages(spark))
                return tuple(row)

            return Contestant(name, run, run, ours=ours, floor=floor)

        def joined(partitioned: str) -> str:
            hint = f"/*+ PIPELINED_JOIN(one, 'partitioned={partitioned}') */"
            return f"SELECT {hint} {', '.join(names)} FROM sent LEFT JOIN one ON l_orderkey = k"

        sent = [
            contestant("sparkext, planned", joined("always"), ours=True),
            contestant("Spark, REPARTITION hint", f"SELECT /*+ REPARTITION({_PARTITIONS}, l_orderkey) */ * FROM sent"),
        ]
        kept = [
            contestant("sparkext, not sent", joined("never"), floor=True),
            contestant("Spark, not sent", "SELECT * FROM sent", floor=True),
        ]
        verify([*sent, *kept])
        timings = measure(bench, [*sent, *kept])
        report(bench, timings, rows.count(), cpu=False)
        medians = {timing.contestant.name: timing.median for timing in timings}
        for with_exchange, without in zip(sent, kept, strict=True):
            name, size = with_exchange.name, written[with_exchange.name]
            alone = medians[name] - medians[without.name] if medians else 0.0
            bench.record(part="exchange", contestant=name, seconds=alone, bytes=size)
            print(f"the exchange alone: {name} {alone:.2f} s, {size / 2**20:,.0f} MiB written")


def _run(sink: Callable[[DataFrame], object], bench: Bench) -> None:
    with _session(bench) as spark:
        _compare(bench, spark, sink, "sparkext, planned")


def _run_transform(bench: Bench) -> None:
    from bench.engines.spark_session import spark_session

    with spark_session(bench.threads, **_SETTINGS) as spark:
        _compare(bench, spark, _sums, "sparkext, transform")


def _compare(bench: Bench, spark: SparkSession, sink: Callable[[DataFrame], object], name: str) -> None:
    from sparkext.cli.demo import COLUMNS

    tables = read_tables(bench, spark, COLUMNS, _JOINS)
    rows = tables["lineitem"].count()
    contestant = Workload("", COLUMNS, _JOINS, _sums, sink).contestant
    contestants = [
        contestant(name, lambda: pipelined(tables, _JOINS, partitioned=True), ours=True),
        contestant("Spark, default plan", lambda: spark_joins(tables, _JOINS)),
        *(
            contestant(f"Spark, {hint} hint", partial(spark_joins, tables, _JOINS, hint), group="hinted")
            for hint in ("merge", "shuffle_hash")
        ),
    ]
    verify(contestants)
    asked: list[float] = []
    ours = contestants[0]

    def run() -> object:
        answer = ours.run()
        asked.append(_seconds_of(spark, "partitions of partitioned joins"))
        return answer

    timings = measure(bench, [replace(ours, run=run), *contestants[1:]])
    report(bench, timings, rows, cpu=False)
    if timings and max(asked) > 0:  # the transform has no load balancer
        median = timings[0].median
        seconds = float(np.median(asked))
        bench.record(part="balancer", planning_seconds=asked)
        print(f"the balancer: {seconds:.3f} s, {seconds / median:.1%} of what sparkext takes")


def _seconds_of(spark: SparkSession, described: str) -> float:
    """Return the total seconds of the last query's jobs with this description."""
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = _last_query(spark).jobs().keySet().toSeq()
    found = [store.job(jobs.apply(number)) for number in range(jobs.size())]
    return float(
        sum(
            (job.completionTime().get().getTime() - job.submissionTime().get().getTime()) / 1000
            for job in found
            if job.description().isDefined() and job.description().get() == described
        )
    )


def _run_queries(bench: Bench) -> None:
    import sparkext
    from bench.engines.spark_session import spark_session

    settings = {"spark.sql.shuffle.partitions": str(_PARTITIONS), "spark.sparkext.debug.sessions": "true"}
    every_join = {"spark.sparkext.partitioned": "always", "spark.sparkext.debug.force": "true"}
    table = []
    with spark_session(bench.threads, sparkext.configure, **settings) as spark:
        asked = SparkQueries.of_files(spark, tpch.tables(bench))
        for name, text in tpch.texts(bench).items():
            contestants = [
                same("partitioned", partial(asked.rows, text, cold=True, settings=every_join), ours=True),
                same(DEFAULT, partial(asked.rows, text, mode="off")),
                same("no broadcasts", partial(asked.rows, text, mode="off", settings=_NO_BROADCASTS)),
            ]
            seconds = timed(bench, name, contestants)
            if seconds:
                ours, *others = seconds.values()
                times = [f"{value:.2f}" for value in seconds.values()]
                table.append([name, *times, *(f"{value / ours:.2f}" for value in others)])
    print(format_table(["query", "partitioned", DEFAULT, "no broadcasts", "times", "times"], table))


def _run_growth(bench: Bench) -> None:
    with _session(bench) as spark:

        def contestants(rows: int, partitions: int) -> tuple[int, list[Contestant]]:
            paths = written(bench, f"growth-{rows}", lambda: star(rows, max(1, rows // 10), 1))
            views = Views.of_files(spark, paths)
            query = "SELECT {} count(*), sum(f_value), sum(d1_value) FROM fact JOIN dim1 ON f_key1 = d1_key"

            def contestant(name: str, hint: str, ours: bool = False) -> Contestant:
                def run() -> object:
                    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
                    return views.row(query.format(hint))

                return same(name, run, ours=ours)

            hint = "/*+ PIPELINED_JOIN(dim1, 'partitioned=always') */"
            return rows, [contestant("sparkext, planned", hint, ours=True), contestant("Spark, default plan", "")]

        base = bench.sized(_GROWTH_ROWS)
        grow(bench, {factor: partial(contestants, factor * base, _PARTITIONS) for factor in FACTORS}, "times the data")
        grow(
            bench,
            {factor: partial(contestants, 2 * base, factor * _PARTITIONS) for factor in FACTORS},
            f"times {_PARTITIONS} partitions",
        )


def _run_hot(kind: str, bench: Bench) -> None:
    with _session(bench) as spark, TemporaryDirectory() as folder:
        _zipf(bench, spark, Path(folder), _PROBE_ROWS)
        query = "SELECT {} count(*), sum(v), sum(w) FROM a {} JOIN b ON a.k = b.k"

        longest: list[float] = []

        def contestant(name: str, hint: str, ours: bool = False, **settings: str) -> Contestant:
            def run() -> object:
                with with_settings(spark, settings):
                    [row] = spark.sql(query.format(hint, kind)).collect()
                longest.append(_longest_task(spark))
                return tuple(row)

            return Contestant(name, run, run, ours=ours)

        contestants = [
            contestant("sparkext, planned", _HOT_HINT, ours=True),
            contestant("Spark, default plan", ""),
            contestant("Spark, skew join told to split", "", **_SPLIT),
        ]
        verify(contestants)
        del longest[:]
        timings = measure(bench, contestants)
        report(bench, timings, bench.sized(_PROBE_ROWS), cpu=False)
        for number, contestant_ in enumerate(contestants if longest else ()):
            tasks = longest[number :: len(contestants)]
            bench.record(part="longest task", contestant=contestant_.name, task_seconds=tasks)
            print(f"longest task: {contestant_.name} {np.median(tasks):.2f} s")


def _run_costs(bench: Bench) -> None:
    import sparkext

    table = []
    with _session(bench) as spark, TemporaryDirectory() as folder:
        _zipf(bench, spark, Path(folder), _PROBE_ROWS // 4)
        query = "SELECT {} count(*), sum(v), sum(w) FROM a JOIN b ON a.k = b.k {}"
        for name, condition in _COSTLY.items():
            expected = spark.sql(query.format("", condition)).collect()
            told = []
            for run in ("first", "second"):
                joined = spark.sql(query.format(_HOT_HINT, condition))
                if joined.collect() != expected:
                    raise WrongAnswerError(f"condition {name}, {run} run: not what Spark joins")
                partitions = sparkext.report(joined).partitions
                if partitions is None:
                    raise WrongAnswerError(f"condition {name}: not partitioned")
                planned, took = sum(partitions.planned), sum(partitions.took)
                bench.record(part=name, run=run, partitions=len(partitions.planned), planned=planned, took=took)
                told += [str(len(partitions.planned)), f"{planned:.2f}", f"{took:.2f}"]
            table.append([name, *told])
    print(format_table(["condition", *["partitions", "planned, s", "took, s"] * 2], table))


def _zipf(bench: Bench, spark: SparkSession, folder: Path, probe_rows: int) -> None:
    """Write both sides in eight files each, and register them as `a` and `b`; `b` has a tenth of the rows."""
    generator = np.random.default_rng(5)
    weights = np.arange(1, _KEYS + 1, dtype=np.float64) ** -_EXPONENT
    keys = generator.permutation(_KEYS)
    for name, value, rows in (("a", "v", bench.sized(probe_rows)), ("b", "w", bench.sized(probe_rows // 10))):
        drawn = keys[generator.choice(_KEYS, rows, p=weights / weights.sum())]
        table = pa.table({"k": pa.array(drawn, pa.int64()), value: pa.array(np.arange(rows) % 1000, pa.int64())})
        spark.read.parquet(str(in_files(table, folder / name))).createOrReplaceTempView(name)


def _longest_task(spark: SparkSession) -> float:
    """Return the seconds of the longest task in all stages of the last query."""
    store = spark.sparkContext._jsc.sc().statusStore()
    longest = 0.0
    for stage in _stages(spark):
        tasks = store.taskList(stage.stageId(), 0, 10_000)
        for task in (tasks.apply(at) for at in range(tasks.size())):
            if task.duration().isDefined():
                longest = max(longest, task.duration().get() / 1000)
    return longest


def _stages(spark: SparkSession) -> list[Any]:
    """Return the last attempt of each stage of the last query, from Spark's status store."""
    store = spark.sparkContext._jsc.sc().statusStore()
    stages = _last_query(spark).stages().toSeq()
    return [store.lastStageAttempt(int(stages.apply(number))) for number in range(stages.size())]


def _last_query(spark: SparkSession) -> Any:
    """Return the last query from Spark's status store, after all its events have been processed."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return spark._jsparkSession.sharedState().statusStore().executionsList().last()
