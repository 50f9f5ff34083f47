"""`report`: its numbers against known values, and the run that it covers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import SparkExtError, pipelined_join, report
from sparkext.errors import ReportUnavailableError
from sparkext.joins import build_side
from sparkext.joins.lineage import find_lineage
from sparkext.plans.adaptive.operator_summary import OperatorSummary
from sparkext.reports.metrics import TaskId, TaskMetrics, select_last_run
from sparkext.reports.report import Report, summarise
from tests.api.spark_checks import assert_pipelined
from tests.support.frames import table
from tests.support.sessions import configured

PARTS = 8
ROWS = 800


@pytest.fixture(autouse=True)
def _as_written(spark: SparkSession) -> Iterator[None]:
    """Report the rows of each join in the order of the query."""
    spark.conf.set("spark.sparkext.debug.joinOrder", "query")
    yield
    spark.conf.unset("spark.sparkext.debug.joinOrder")


@pytest.fixture(scope="module")
def facts(spark: SparkSession) -> DataFrame:
    """800 rows in 8 partitions: `a` has each value from 0 to 99 eight times, `b` has values from 0 to 9."""
    return spark.range(0, ROWS, 1, PARTS).selectExpr("id", "id % 100 as a", "id % 10 as b")


def every_third(spark: SparkSession) -> DataFrame:
    """Keys 0, 3, … 99, each twice: they match 34 of the 100 values of `a`."""
    return spark.range(0, 100, 3).selectExpr("id as x", "explode(array('p', 'q')) as p")


def ran(out: DataFrame) -> Report:
    """Run the query once, and return its report."""
    out.write.format("noop").mode("overwrite").save()
    return report(out)


def test_rows_fan_out_and_indexes(spark: SparkSession, facts: DataFrame) -> None:
    sparse = table(u=[1, 3 << 40, None, 5 << 50], r=[1.0, 2.0, 3.0, 4.0])
    out = facts.transform(pipelined_join(every_third(spark), [("a", "x")]))
    out = out.transform(pipelined_join(sparse, [("b", "u")], "left"))
    out = out.transform(pipelined_join(table(z=[0, 1, 2]), [("b", "z")], "semi", algorithm="sort_merge"))
    out = out.transform(pipelined_join(table(n=["one", "two"]), how="cross"))
    assert_pipelined(out, joins=4)
    told = ran(out)
    hits = [i for i in range(ROWS) if i % 100 % 3 == 0]
    kept = [i for i in hits if i % 10 in (0, 1, 2)]
    first, second, third, fourth, gather = told.joins
    assert (first.rows_in, first.rows_out) == (ROWS, 2 * len(hits))
    assert (second.rows_in, second.rows_out) == (2 * len(hits), 2 * len(hits))
    assert (third.rows_in, third.rows_out) == (2 * len(hits), 2 * len(kept))
    assert (fourth.rows_in, fourth.rows_out) == (2 * len(kept), 4 * len(kept))
    assert (gather.rows_in, gather.rows_out) == (4 * len(kept), 4 * len(kept))
    assert gather.rows_out == out.count()
    assert first.fan_out == 2 * len(hits) / ROWS
    assert [join.fan_out for join in told.joins[1:]] == [1.0, len(kept) / len(hits), 2.0, 1.0]
    assert [join.operator for join in told.joins] == [
        "inner on a = x",
        "left on b = u",
        "semi on b = z",
        "cross",
        "gather payload",
    ]
    assert [join.build_rows for join in told.joins] == [68, 4, 3, 2, None]
    assert [join.index for join in told.joins][:3] == ["dense", "hash", "ordered"]
    assert first.reason == "keys span 100 values for 68 rows: addressed directly"
    assert second.reason is not None and "too sparse" in second.reason and "for 3 rows" in second.reason
    assert third.reason == "sort-merge was requested"
    assert fourth.reason == "the join has no key"
    assert (gather.index, gather.reason, gather.index_bytes, gather.build_seconds) == (None,) * 4
    assert [join.build_bytes for join in told.joins[1:]] == [4 * (8 + 8) + 1, 3 * 8, 2 * 4 + 6, None]
    for join in (first, second, third):
        assert join.index_bytes is not None and join.index_bytes > 0
        assert join.build_seconds is not None and 0 < join.build_seconds < 60
    for join in told.joins:
        assert 0 <= join.seconds < 60


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_rows_of_every_kind(spark: SparkSession, facts: DataFrame, how: str) -> None:
    """Rows in are probe rows; the unmatched build rows of right and full joins count as rows out."""
    build = spark.range(90, 110).selectExpr("id as x", "-id as y")
    told = ran(facts.transform(pipelined_join(build, [("a", "x")], how)))
    join, gather = told.joins
    out = {"inner": 80, "left": 800, "right": 90, "full": 810, "semi": 80, "anti": 720}[how]
    assert (join.rows_in, join.rows_out, gather.rows_in, gather.rows_out) == (ROWS, out, out, out)
    assert join.build_rows == 20
    assert join.fan_out == out / ROWS
    assert join.operator == f"{how} on a = x"


def test_rows_that_a_pipeline_counts_in_the_summary_line(facts: DataFrame) -> None:
    """Even if build row ids are shuffled together with the probe rows."""
    for how in ("inner", "right"):
        told = ran(facts.transform(pipelined_join(table(x=[1, 2, 3]), [("a", "x")], how)))
        assert f"{ROWS} rows in" in str(told)


def test_budgets_under_max_rows(spark: SparkSession, facts: DataFrame) -> None:
    with configured(spark, {"spark.sparkext.morsel.maxRows": 7}):
        out = facts.transform(pipelined_join(every_third(spark), [("a", "x")]))
    told = ran(out)
    for join in told.joins:
        assert (join.budget_min, join.budget_median, join.budget_max) == (7, 7, 7)
    join, gather = told.joins
    assert join.rows_out == 544
    # Each task has 15 morsels of at most 7 rows, and each call of the join emits at most 7 rows.
    assert [task.morsels for task in told.tasks] == [15] * PARTS
    assert join.morsels >= 544 / 7
    assert gather.morsels >= join.morsels
    for task in told.tasks:
        assert all(budget == 7 and produced <= 7 for _, _, _, budget, produced in task.decisions)


def test_budgets_without_a_limit_of_ones_own(spark: SparkSession, facts: DataFrame) -> None:
    told = ran(facts.transform(pipelined_join(every_third(spark), [("a", "x")])))
    for join in told.joins:
        assert join.budget_min is not None and join.budget_median is not None and join.budget_max is not None
        assert 1024 <= join.budget_min <= join.budget_median <= join.budget_max <= 131_072
        assert join.morsels == PARTS


def test_one_row_budgets(spark: SparkSession, facts: DataFrame) -> None:
    with configured(spark, {"spark.sparkext.morsel.maxRows": 1}):
        out = facts.limit(50).transform(pipelined_join(table(b2=[0] * 3 + [1], n=list("wxyz")), [("b", "b2")]))
    told = ran(out)
    join, gather = told.joins
    assert join.rows_out == 20
    assert (join.morsels, gather.morsels) == (20, 20)
    assert (join.budget_min, join.budget_median, join.budget_max) == (1, 1, 1)


def test_headroom(spark: SparkSession, facts: DataFrame) -> None:
    """The free memory of this machine, and the name of its limit."""
    told = ran(facts.transform(pipelined_join(every_third(spark), [("a", "x")])))
    for join in told.joins:
        assert join.lowest_headroom is not None and 0 < join.lowest_headroom < 1 << 50
        assert join.headroom_limit
        assert f"({join.headroom_limit})" in str(told)


def test_decisions_that_are_kept(spark: SparkSession, facts: DataFrame) -> None:
    for keep in (0, 256):
        with configured(spark, {"spark.sparkext.report.decisions": keep}):
            out = facts.transform(pipelined_join(every_third(spark), [("a", "x")]))
        told = ran(out)
        assert [len(task.decisions) for task in told.tasks] == [0 if keep == 0 else 2] * PARTS
        assert told.joins[0].rows_out == 544


def test_decisions_tell_when_they_were_made(spark: SparkSession, facts: DataFrame) -> None:
    """Decisions have wall-clock times between the start and the end of their task."""
    before = time.time()
    told = ran(facts.transform(pipelined_join(every_third(spark), [("a", "x")])))
    after = time.time()
    assert before < told.started < told.started + told.elapsed_seconds < after
    for task in told.tasks:
        times = [decision[0] for decision in task.decisions]
        assert times == sorted(times)
        # The bounds are derived from two clocks, which agree to about a millisecond.
        assert task.started - 0.1 < times[0] <= times[-1] < task.started + task.elapsed_seconds + 0.1
    kept = told.decisions_to_pandas()
    assert list(kept.columns) == ["time", "partition", "operator", "headroom", "budget", "produced"]
    assert len(kept) == 2 * PARTS and kept["time"].is_monotonic_increasing
    assert kept.groupby("operator")["produced"].sum().tolist() == [544, 544]
    assert sorted(set(kept["partition"])) == list(range(PARTS)) and (kept["headroom"] > 0).all()


# Many tasks.


def test_tasks_are_merged(spark: SparkSession, facts: DataFrame) -> None:
    told = ran(facts.transform(pipelined_join(every_third(spark), [("a", "x")])))
    assert [task.task.partition for task in told.tasks] == list(range(PARTS))
    assert len({task.task.stage for task in told.tasks}) == 1
    assert [task.rows_in for task in told.tasks] == [100] * PARTS
    assert [task.operators[0]["rows_out"] for task in told.tasks] == [68] * PARTS
    assert all(task.batches_in == 1 and task.morsels == 1 and task.batches_out == 1 for task in told.tasks)
    assert all(task.elapsed_seconds >= 0 and task.peak_rss_bytes > 1 << 20 for task in told.tasks)
    assert "8 tasks, 800 rows in" in str(told)


def test_batches_of_spark_are_not_morsels(spark: SparkSession, facts: DataFrame) -> None:
    with configured(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": 10}):
        told = ran(facts.transform(pipelined_join(every_third(spark), [("a", "x")])))
    assert [task.batches_in for task in told.tasks] == [10] * PARTS
    assert [task.morsels for task in told.tasks] == [1] * PARTS


def test_empty_partitions_are_tasks_too(spark: SparkSession) -> None:
    out = spark.range(0, 2, 1, 5).transform(pipelined_join(table(id=[0, 1, 1]), "id"))
    assert_pipelined(out, joins=1)
    told = ran(out)
    assert (told.joins[0].rows_in, told.joins[0].rows_out) == (2, 3)
    assert sum(task.rows_in for task in told.tasks) == 2
    assert 1 <= len(told.tasks) <= 5


def test_a_probe_side_without_rows(spark: SparkSession) -> None:
    out = spark.range(0, 10, 1, 2).where("id % 3 > 5").transform(pipelined_join(table(id=[0, 1, 1]), "id"))
    assert_pipelined(out, joins=1)
    told = ran(out)
    assert (told.joins[0].rows_in, told.joins[0].rows_out) == (0, 0)
    assert told.joins[0].fan_out is None
    assert "inner on id" in str(told)


def test_a_run_without_tasks_leaves_no_report(spark: SparkSession) -> None:
    out = spark.range(0, 10, 1, 2).where("false").transform(pipelined_join(table(id=[0, 1, 1]), "id"))
    assert out.collect() == []
    with pytest.raises(ReportUnavailableError, match="without tasks"):
        report(out)


def test_no_row_matches(facts: DataFrame) -> None:
    told = ran(facts.transform(pipelined_join(table(a=[-1, -2]), "a")))
    join, gather = told.joins
    assert (join.rows_in, join.rows_out, join.fan_out) == (ROWS, 0, 0.0)
    assert (gather.rows_in, gather.rows_out, gather.fan_out) == (0, 0, None)
    assert (gather.budget_min, gather.budget_median, gather.budget_max, gather.morsels) == (None, None, None, 0)
    assert str(told)


def test_an_empty_build_side(facts: DataFrame) -> None:
    told = ran(facts.transform(pipelined_join(table(a=(pa.int64(), []), w=(pa.int64(), [])), "a", "left")))
    assert (told.joins[0].build_rows, told.joins[0].rows_out) == (0, ROWS)
    assert told.joins[0].reason == "no build row has a key that can match"


# Which run.


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[Path, DataFrame]]:
    """Return a file that contains a number, and a DataFrame that has this many rows at each run."""
    file = tmp_path / "rows"

    def read(batches):  # type: ignore[no-untyped-def]
        for _ in batches:
            yield pd.DataFrame({"k": [number % 4 for number in range(int(file.read_text()))]})

    yield file, spark.range(0, 1, 1, 1).mapInPandas(read, "k bigint")


def test_only_the_last_run_counts(source: tuple[Path, DataFrame]) -> None:
    file, left = source
    out = left.transform(pipelined_join(table(k=[1, 2, 2], w=[1, 2, 3]), "k"))
    assert_pipelined(out, joins=1)
    seen = []
    for rows in (40, 8, 20, 0, 4):
        file.write_text(str(rows))
        assert out.count() == rows // 4 * 3
        told = report(out)
        seen.append((told.joins[0].rows_in, told.joins[0].rows_out, len(told.tasks)))
        assert report(out) == told
    assert seen == [(40, 30, 1), (8, 6, 1), (20, 15, 1), (0, 0, 1), (4, 3, 1)]


def test_a_failed_run_leaves_the_one_before(source: tuple[Path, DataFrame]) -> None:
    file, left = source
    out = left.transform(pipelined_join(table(k=[1, 2, 2]), "k"))
    file.write_text("8")
    assert out.count() == 6
    file.write_text("not a number")
    with pytest.raises(Exception, match="not a number"):
        out.count()
    assert report(out).joins[0].rows_in == 8
    file.write_text("16")
    assert out.count() == 12
    assert report(out).joins[0].rows_in == 16


def test_runs_of_derived_frames_count(spark: SparkSession, facts: DataFrame) -> None:
    out = facts.transform(pipelined_join(every_third(spark), [("a", "x")]))
    derived = {
        "groupBy": out.groupBy("p").count(),
        "filter": out.where("id < 10"),
        "select": out.select("p"),
        "sort": out.sort("id"),
    }
    stages = []
    for name, df in derived.items():
        assert_pipelined(df)
        assert df.collect(), name
        told = report(out)
        assert (told.joins[0].rows_in, told.joins[-1].rows_out) == (ROWS, 544), name
        stages.append(told.tasks[0].task.stage)
        with pytest.raises(ReportUnavailableError):
            report(df)
    assert stages == sorted(set(stages))


def test_each_frame_of_a_chain_has_a_report_of_its_own(spark: SparkSession, facts: DataFrame) -> None:
    middle = facts.transform(pipelined_join(every_third(spark), [("a", "x")]))
    out = middle.transform(pipelined_join(table(b=[1, 2]), "b", "semi"))
    out.count()
    assert len(report(out).joins) == 3
    with pytest.raises(ReportUnavailableError, match="has not run yet"):
        report(middle)
    middle.count()
    assert len(report(middle).joins) == 2
    assert len(report(out).joins) == 3


def test_a_cached_result_ran_once(spark: SparkSession, facts: DataFrame) -> None:
    out = facts.transform(pipelined_join(every_third(spark), [("a", "x")])).cache()
    try:
        assert out.count() == 544
        once = report(out)
        assert out.count() == 544
        assert report(out) == once
        assert once.joins[0].rows_in == ROWS
    finally:
        out.unpersist(blocking=True)


def test_a_pipeline_that_runs_twice_in_one_stage(facts: DataFrame) -> None:
    """Both branches of a union are tasks of one stage."""
    out = facts.transform(pipelined_join(table(b=[1, 2]), "b"))
    assert out.union(out).count() == 320
    told = report(out)
    assert len(told.tasks) == 2 * PARTS
    assert (told.joins[0].rows_in, told.joins[0].rows_out) == (2 * ROWS, 320)


def test_a_run_that_a_limit_cuts_short_leaves_no_report(spark: SparkSession) -> None:
    """Spark stops reading from a worker before it receives the metrics; the error mentions this."""
    facts = spark.range(0, 200_000, 1, 2).selectExpr("id", "id % 100 as a")
    out = facts.transform(pipelined_join(every_third(spark), [("a", "x")]))
    assert_pipelined(out, joins=1)
    assert len(out.limit(3).collect()) == 3
    with pytest.raises(ReportUnavailableError, match="limit, show or take"):
        report(out)


# Progress on the driver, before the run.


def test_progress_is_told_of_a_build_side(
    spark: SparkSession, facts: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, list[Any]] = {}

    @contextmanager
    def recorded(step: str, unit: str, total: int | None = None, *, shown: bool) -> Iterator[Callable[[int], None]]:
        told[step] = [unit, total, shown, 0]

        def advance(count: int) -> None:
            told[step][3] += count

        yield advance

    monkeypatch.setattr(build_side, "progress", recorded)
    for how in ("inner", "right"):
        for switch in ("true", "false"):
            with configured(spark, {"spark.sparkext.progress": switch}):
                facts.transform(pipelined_join(every_third(spark), [("a", "x")], how))
            assert told.pop("collecting a build side") == ["rows", None, switch == "true", 68]
            unit, total, shown, written = told.pop("publishing a build side")
            assert (unit, shown) == ("B", switch == "true") and written >= total > 0


# No report.


def test_before_a_run(facts: DataFrame) -> None:
    out = facts.transform(pipelined_join(table(a=[1, 2]), "a"))
    with pytest.raises(ReportUnavailableError, match=r"has not run yet: run an action"):
        report(out)
    assert issubclass(ReportUnavailableError, SparkExtError)
    out.count()
    assert report(out)


def test_a_foreign_frame(spark: SparkSession, facts: DataFrame) -> None:
    out = facts.transform(pipelined_join(table(a=[1, 2]), "a"))
    out.count()
    for foreign in (facts, out.select("*"), facts.join(facts, "id"), spark.range(3)):
        assert find_lineage(foreign) is None
        with pytest.raises(ReportUnavailableError, match=r"expects the DataFrame that transform\(pipelined_join"):
            report(foreign)


@pytest.mark.parametrize("thing", [None, 5, pd.DataFrame({"a": [1]}), "out"], ids=lambda thing: type(thing).__name__)
def test_something_else_than_a_frame(thing: object) -> None:
    with pytest.raises(ReportUnavailableError):
        report(thing)  # type: ignore[arg-type]


# Formatting.

COLUMNS = [
    "operator",
    "rows_in",
    "rows_out",
    "pairs_tried",
    "index",
    "reason",
    "build_rows",
    "build_bytes",
    "index_bytes",
    "build_seconds",
    "index_reused",
    "made_by",
    "morsels",
    "budget_min",
    "budget_median",
    "budget_max",
    "lowest_headroom",
    "headroom_limit",
    "seconds",
    "fan_out",
]


def test_to_pandas(spark: SparkSession, facts: DataFrame) -> None:
    told = ran(facts.transform(pipelined_join(every_third(spark), [("a", "x")])))
    pandas = told.to_pandas()
    assert list(pandas.columns) == COLUMNS
    assert pandas["operator"].tolist() == ["inner on a = x", "gather payload"]
    assert pandas["rows_in"].tolist() == [800, 544]
    assert pandas["rows_out"].tolist() == [544, 544]
    assert pandas["fan_out"].tolist() == [0.68, 1.0]
    assert pandas["index"].iloc[0] == "dense" and pd.isna(pandas["index"].iloc[1])
    assert pandas["build_rows"].iloc[0] == 68 and pd.isna(pandas["build_rows"].iloc[1])


MASKS = [
    (r"\d+\.\d{3} s", "T"),
    (r"\d+(\.\d)? ([KMG]i)?B \([^)]+\)", "HEADROOM"),
    (r"memory \d+(\.\d)? ([KMG]i)?B", "memory M"),
    (r"\d+(\.\d)? ([KMG]i)?B", "SIZE"),
    (r"-{3,}", "---"),
    (r" {2,}", " | "),
]


def test_the_printed_report_of_a_run(spark: SparkSession, facts: DataFrame) -> None:
    with configured(spark, {"spark.sparkext.morsel.maxRows": 100}):
        out = facts.transform(pipelined_join(every_third(spark), [("a", "x")]))
        out = out.transform(pipelined_join(table(z=[0, 1, 2]), [("b", "z")], "anti"))
    text = str(ran(out))
    assert len({len(line) for line in text.splitlines()[:2]}) == 1, text
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    header = (
        "operator | rows in | rows out | fan-out | index | build rows | build size | index size | built in | morsels"
    )
    assert text.splitlines() == [
        f"{header} | budget min/med/max | lowest headroom | in kernels",
        " | ".join(["---"] * 13),
        "inner on a = x | 800 | 544 | 0.68 | dense | 68 | SIZE | SIZE | T | 8 | 100/100/100 | HEADROOM | T",
        "anti on b = z | 544 | 384 | 0.706 | key set | 3 | SIZE | SIZE | T | 8 | 100/100/100 | HEADROOM | T",
        "gather payload | 384 | 384 | 1 | 8 | 100/100/100 | HEADROOM | T",
        "8 tasks, 800 rows in, peak worker memory M",
    ]


def test_the_report_in_a_notebook(spark: SparkSession, facts: DataFrame) -> None:
    """Column names may contain any text; notebooks show well-formed HTML with only the report's own elements."""
    name = "<script>alert('x')</script>&\""
    build = every_third(spark).withColumnRenamed("x", name)
    told = ran(facts.transform(pipelined_join(build, [("a", name)])))
    page = told._repr_html_()
    tree = ElementTree.fromstring(page)
    assert "script" not in {element.tag for element in tree.iter()}
    assert name in "".join(tree.itertext())
    assert repr(told) == str(told)
    cells = ["".join(cell.itertext()) for cell in tree.iter("td")]
    assert cells[0].startswith("1") and "keys span 100 values" in cells[0]
    assert cells[1].startswith("68") and cells[3] == "800→ 544" and cells[4] == "0.68"
    assert [title.text for title in tree.iter("title")][-2].startswith(f"1: inner on a = {name}, 8 budgets")


def operator(
    number: int, rows_in: int, rows_out: int, budget: int | None = 4096, headroom: int | None = None
) -> OperatorSummary:
    return {
        "operator": number,
        "calls": 0 if budget is None else 3,
        "budget_min": budget,
        "budget_median": budget,
        "budget_max": budget,
        "headroom_min": headroom,
        "headroom_limit": None if headroom is None else "cgroup",
        "rows_in": rows_in,
        "rows_out": rows_out,
        "budget_counts": [] if budget is None else [[budget, 3]],
    }


def metrics(
    stage: int,
    partition: int,
    attempt: int,
    rows: int = 1,
    budget: int | None = 4096,
    headroom: int | None = 3 << 30,
    is_partition: bool = False,
) -> TaskMetrics:
    """Return invented metrics of a task that joined `rows` rows and doubled them."""
    return TaskMetrics(
        TaskId(stage, partition, attempt),
        operators=[operator(0, rows, 2 * rows, budget, headroom), operator(1, 2 * rows, 2 * rows, budget, headroom)],
        seconds=[0.25, 0.5],
        indexes=[
            {
                "kind": "hash",
                "reason": "sparse",
                "bytes": 2048,
                "build_rows": 1234,
                "build_bytes": 9872,
                "seconds": 0.125,
                "reused": False,
                "is_partition": is_partition,
            }
        ],
        decisions=[(0.5, 0, 3 << 30, 4096, 2 * rows), (0.75, 1, None, 4096, 2 * rows)],
        rows_in=rows,
        batches_in=1,
        morsels=1,
        batches_out=1,
        peak_rss_bytes=(100 + partition) << 20,
        elapsed_seconds=1.0,
    )


LABELS = ["inner on k"]


def test_the_printed_report_of_made_up_tasks() -> None:
    told = summarise(LABELS, [metrics(1, 0, 0, 1_000_000), metrics(1, 1, 0, 500_000, 8192, 512)])
    assert str(told).splitlines() == [
        "operator          rows in   rows out  fan-out  index  build rows  build size  index size  built in  morsels"
        "  budget min/med/max  lowest headroom  in kernels",
        "--------------  ---------  ---------  -------  -----  ----------  ----------  ----------  --------  -------"
        "  ------------------  ---------------  ----------",
        "inner on k      1,500,000  3,000,000        2  hash        1,234     9.6 KiB     2.0 KiB   0.125 s        6"
        "      4096/4096/8192   512 B (cgroup)     0.500 s",
        "gather payload  3,000,000  3,000,000        1                                                             6"
        "      4096/4096/8192   512 B (cgroup)     1.000 s",
        "2 tasks, 1,500,000 rows in, peak worker memory 101.0 MiB",
    ]


def test_partitions_of_a_build_side_add_up() -> None:
    """The sizes of partitions are added. For a replicated build side, every task maps the same index."""
    tasks = [metrics(1, partition, 0, is_partition=True) for partition in range(3)]
    tasks[1].indexes[0].update(kind="dense", build_rows=6, build_bytes=28, bytes=52, seconds=0.5)
    [join, _] = summarise(LABELS, tasks).joins
    assert (join.build_rows, join.build_bytes, join.index_bytes) == (2 * 1234 + 6, 2 * 9872 + 28, 2 * 2048 + 52)
    assert (join.build_seconds, join.index) == (0.5, "hash, dense")
    [join, _] = summarise(LABELS, [metrics(1, partition, 0) for partition in range(3)]).joins
    assert (join.build_rows, join.build_bytes, join.index_bytes, join.index) == (1234, 9872, 2048, "hash")


def test_the_printed_report_of_tasks_that_decided_nothing() -> None:
    told = summarise(LABELS, [metrics(1, 0, 0, 0, budget=None, headroom=None)])
    assert str(told).splitlines()[2].split() == [
        *("inner", "on", "k", "0", "0", "hash", "1,234", "9.6", "KiB", "2.0", "KiB", "0.125", "s", "0", "0.250", "s")
    ]


# Attempts of tasks.


def test_an_attempt_that_failed_does_not_count() -> None:
    """The latest attempt of each partition counts, in any order of arrival."""
    failed = TaskMetrics(TaskId(3, 1, 0), rows_in=7)
    tasks = [metrics(3, 1, 1, 20), failed, metrics(3, 0, 0, 10), metrics(3, 1, 2, 30)]
    for order in (tasks, tasks[::-1], tasks[2:] + tasks[:2]):
        kept = select_last_run(order)
        assert [(task.task.partition, task.task.attempt) for task in kept] == [(0, 0), (1, 2)]
        told = summarise(LABELS, kept)
        assert told.joins[0].rows_in == 40
        assert told.joins[0].rows_out == 80


def test_only_the_latest_stage_counts() -> None:
    tasks = [metrics(9, 0, 0, 1), metrics(9, 1, 3, 1), metrics(10, 0, 0, 5), metrics(8, 2, 0, 100)]
    for order in (tasks, tasks[::-1]):
        kept = select_last_run(order)
        assert [(task.task.stage, task.rows_in) for task in kept] == [(10, 5)]
    assert select_last_run([]) == []


def test_a_task_that_reported_twice_counts_once() -> None:
    assert len(select_last_run([metrics(1, 0, 0, 4), metrics(1, 0, 0, 4)])) == 1


def test_a_task_that_stopped_early_spoils_no_report() -> None:
    """A task whose consumer needs no more rows reports before its counters are complete."""
    stopped = TaskMetrics(TaskId(1, 0, 0), rows_in=5)
    told = summarise(LABELS, select_last_run([stopped, metrics(1, 1, 0, 10)]))
    assert told.joins[0].rows_in >= 10
    assert told.joins[0].build_rows == 1234
    assert str(told)


def test_metrics_survive_json() -> None:
    for one in (metrics(1, 2, 3, 5), metrics(1, 2, 3, 0, None, None), TaskMetrics(TaskId(0, 0, 0))):
        text = one.to_json()
        back = TaskMetrics.from_json(text)
        assert json.loads(back.to_json()) == json.loads(text)
        assert back.task == one.task
        assert back.operators == one.operators
        assert back.indexes == one.indexes
        assert [tuple(decision) for decision in back.decisions] == one.decisions
        if one.operators:
            assert summarise(LABELS, [back]).joins == summarise(LABELS, [one]).joins


def test_metrics_are_equal_after_json() -> None:
    one = metrics(1, 2, 3, 5)
    assert TaskMetrics.from_json(one.to_json()) == one


def test_metrics_of_a_real_run_survive_json(facts: DataFrame) -> None:
    out = facts.transform(pipelined_join(table(b=[1, 2]), "b"))
    told = ran(out)
    back = [TaskMetrics.from_json(task.to_json()) for task in told.tasks]
    assert summarise([join.operator for join in told.joins[:-1]], back).joins == told.joins


def test_the_sum_of_a_column_agrees_with_the_rows_told(spark: SparkSession, facts: DataFrame) -> None:
    """The counters equal the number of emitted rows."""
    out = facts.transform(pipelined_join(every_third(spark), [("a", "x")]))
    counted = out.agg(F.count("*"), F.sum("id")).first()
    assert counted is not None and counted[0] == report(out).joins[-1].rows_out
