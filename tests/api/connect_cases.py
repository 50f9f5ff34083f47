"""The main cases through Spark Connect. `test_connect.py` runs them in a process without a classic session."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join, report, scan_parquet
from sparkext.build_sides.published_files import ArtifactFile
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.errors import BuildSideTooLargeError, InvalidJoinError, ReportUnavailableError
from sparkext.joins import build_side
from sparkext.joins.lineage import find_lineage
from sparkext.reports.reporters import SpoolReporter
from sparkext.spark.session_settings import encrypts_files, is_connect
from tests.api.spark_checks import (
    KINDS,
    assert_like_spark,
    assert_pipelined,
    assert_same_rows,
    crossings_of,
    physical_plan,
)
from tests.api.test_publishing import assert_one_copy, build_of_megabytes, probe_in_two_workers
from tests.support.frames import frame
from tests.support.sessions import configured


@pytest.fixture(scope="session")
def spark(connect_settings: dict[str, str]) -> Iterator[SparkSession]:
    """Yield a Connect session whose server runs on two cores."""
    builder = SparkSession.builder.remote("local[2]")
    for key, value in connect_settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    assert is_connect(session)
    yield session
    session.stop()


def left_of(spark: SparkSession) -> DataFrame:
    return frame(spark, parts=3, k=[1, 2, 2, None, 5], v=list("abcde"))


def right_of(spark: SparkSession) -> DataFrame:
    return frame(spark, k=[2, 2, 5, None, 7], w=list("ABCDE"))


def source_of(df: DataFrame, number: int = 0) -> ArtifactFile:
    """Assert that the build side is an artifact, and that metrics are spooled; return the artifact."""
    lineage = find_lineage(df)
    assert lineage is not None
    assert isinstance(lineage.reporter, SpoolReporter)
    source = lineage.sources[number]
    assert isinstance(source, ArtifactFile)
    return source


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(spark: SparkSession, kind: str) -> None:
    out, rows = assert_like_spark(left_of(spark), right_of(spark), "k", kind)
    assert rows
    source_of(out)
    assert_like_spark(left_of(spark), right_of(spark).toDF("q", "w"), [("k", "q")], kind)


def test_cross(spark: SparkSession) -> None:
    _, rows = assert_like_spark(left_of(spark), right_of(spark).toDF("q", "w"), None, "cross")
    assert rows.total() == 25


@pytest.mark.parametrize("kind", KINDS)
def test_null_safe(spark: SparkSession, kind: str) -> None:
    _, rows = assert_like_spark(left_of(spark), right_of(spark).toDF("q", "w"), [("k", "<=>", "q")], kind)
    assert any("None" in row for row in rows) or kind == "anti"


def test_a_chain_is_one_crossing(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = right_of(spark), frame(spark, w=["A", "C"], x=[1.5, float("nan")])
    three = frame(spark, k3=[2, 5], y=[datetime.datetime(2024, 7, 1, 12), None])
    chain = left_of(spark).transform(pipelined_join(one, "k"))
    chain = chain.transform(pipelined_join(two, "w", "left")).transform(pipelined_join(three, [("k", "k3")]))
    assert_pipelined(chain, joins=3)
    chain.explain()
    printed = capsys.readouterr().out
    assert len(re.findall(r"\bMapInArrow\b", printed)) == 1, printed
    assert "Join" not in printed
    expected = left_of(spark).join(one, "k").join(two, "w", "left")
    assert assert_same_rows(expected.join(three, F.col("k") == F.col("k3")), chain).total() == 5
    told = report(chain)
    assert [join.rows_in for join in told.joins] == [5, 5, 5, 5]
    assert len({source_of(chain, number).name for number in range(3)}) == 3


def test_right_and_full_end_the_pipeline_before_them(spark: SparkSession) -> None:
    other = frame(spark, w=["A", "B", "Z"], x=[1, 2, 3])
    for kind in ("right", "full"):
        out = left_of(spark).transform(pipelined_join(right_of(spark), "k")).transform(pipelined_join(other, "w", kind))
        assert_pipelined(out, joins=1, crossings=3)
        assert_same_rows(left_of(spark).join(right_of(spark), "k").join(other, "w", kind), out)


LOCAL = {
    "k": [2, 5, 7],
    "text": ["x", None, "ü"],
    "at": [datetime.datetime(2024, 7, 1, 12), None, datetime.datetime(1969, 12, 31)],
    "items": [[1, 2], None, []],
}


@pytest.mark.parametrize("timestamps", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
def test_local_build_sides(spark: SparkSession, kind: str, timestamps: str) -> None:
    other: Any = pd.DataFrame(LOCAL, index=[3, 3, 4]) if kind == "pandas" else pa.table(LOCAL)
    with configured(spark, {"spark.sql.timestampType": timestamps}):
        # Pandas columns have the types of a classic session, which infers them with Arrow.
        created = spark.createDataFrame(
            other if kind == "pyarrow" else pa.Table.from_pandas(other, preserve_index=False)
        )
        for how in ("left", "full"):
            out = left_of(spark).transform(pipelined_join(other, "k", how))
            assert_pipelined(out, joins=1, crossings=crossings_of(how))
            source_of(out)
            assert_same_rows(left_of(spark).join(created, "k", how), out)


def test_the_report_tells_what_happened(spark: SparkSession) -> None:
    out = left_of(spark).transform(pipelined_join(right_of(spark), "k"))
    with pytest.raises(ReportUnavailableError, match="not run yet"):
        report(out)
    for _ in range(2):  # a second run replaces the first
        assert len(out.collect()) == 5
        told = report(out)
        join, gather = told.joins
        assert (join.rows_in, join.rows_out, join.build_rows) == (5, 5, 5)
        assert join.fan_out == 1.0
        assert join.index == "dense" and join.index_bytes and join.build_seconds is not None
        assert join.budget_min and join.lowest_headroom
        assert (gather.rows_in, gather.rows_out) == (5, 5)
        assert sum(task.rows_in for task in told.tasks) == 5
        assert len({(task.task.stage, task.task.partition) for task in told.tasks}) == len(told.tasks)
    assert list(told.to_pandas()["rows_out"]) == [5, 5]
    assert "inner on k" in str(told)
    assert str(told).endswith(told.notes[0]) and "Spark Connect" in told.notes[0]
    assert "<svg" in told._repr_html_() and told.notes[0] in told._repr_html_()
    with pytest.raises(ReportUnavailableError, match="Connect server's session extension"):
        report(out.select("k"))


def test_bad_input_is_reported_at_call_time_and_all_of_it(spark: SparkSession) -> None:
    with pytest.raises(InvalidJoinError) as caught:
        left_of(spark).transform(pipelined_join(right_of(spark), ["k", "nowhere"], "sideways"))
    assert len(caught.value.problems) >= 2
    for part in ("sideways", "nowhere"):
        assert part in str(caught.value)
    with pytest.raises(InvalidJoinError, match="on is empty"):
        left_of(spark).transform(pipelined_join(right_of(spark), []))
    with pytest.raises(InvalidJoinError, match="'v'"):
        left_of(spark).transform(pipelined_join(right_of(spark).withColumnRenamed("w", "v"), "k"))
    with pytest.raises(InvalidJoinError, match="list"):
        left_of(spark).transform(pipelined_join([1, 2], "k"))
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidJoinError, match="streaming"):
        left_of(spark).transform(pipelined_join(stream.withColumnRenamed("value", "k"), "k"))


def test_too_large_a_build_side(spark: SparkSession) -> None:
    large = spark.range(0, 300_000, 1, 4).withColumnRenamed("id", "k")
    with pytest.raises(BuildSideTooLargeError, match=r"rows take .*limit is 100,000"):
        left_of(spark).transform(pipelined_join(large, "k", max_build_bytes=100_000, partitioned=False))
    assert_like_spark(left_of(spark), right_of(spark), "k")


def test_a_build_side_where_spark_encrypts_its_files(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Artifacts are not encrypted. The setting belongs to the server, and clients can read it."""
    assert not encrypts_files(spark)
    monkeypatch.setattr(build_side, "encrypts_files", lambda session: True)
    with pytest.raises(InvalidJoinError, match=r"spark\.io\.encryption\.enabled is true"):
        left_of(spark).transform(pipelined_join(right_of(spark), "k"))


def test_a_failing_build_side_raises_what_spark_raises(spark: SparkSession) -> None:
    @F.udf("bigint")
    def refuse(value: int) -> int:
        raise ValueError(f"no such value: {value}")

    failing = spark.range(3).select(refuse("id").alias("k"))
    with pytest.raises(PySparkException, match="no such value"):
        left_of(spark).transform(pipelined_join(failing, "k"))


def test_a_cache_in_between_starts_a_new_pipeline(spark: SparkSession) -> None:
    one = left_of(spark).transform(pipelined_join(right_of(spark), "k"))
    one.cache()
    try:
        assert one.count() == 5
        other = frame(spark, w=["A", "C"], x=[1, 2])
        two = one.transform(pipelined_join(other, "w"))
        lineage = find_lineage(two)
        assert lineage is not None and len(lineage.spec.joins) == 1
        assert "InMemoryTableScan" in physical_plan(two)
        assert_same_rows(left_of(spark).join(right_of(spark), "k").join(other, "w"), two)
    finally:
        one.unpersist()


def test_a_filter_in_between_starts_a_new_pipeline(spark: SparkSession) -> None:
    one = left_of(spark).transform(pipelined_join(right_of(spark), "k")).where("v <> 'b'")
    other = frame(spark, w=["A", "C"], x=[1, 2])
    two = one.transform(pipelined_join(other, "w"))
    assert_pipelined(two, joins=1, crossings=2)
    expected = left_of(spark).join(right_of(spark), "k").where("v <> 'b'").join(other, "w")
    assert_same_rows(expected, two)


def test_one_copy_of_build_side_and_index_per_node(spark: SparkSession, tmp_path: Path) -> None:
    probe, build = probe_in_two_workers(spark, tmp_path / "meeting"), build_of_megabytes(spark)
    out = probe.transform(pipelined_join(build, "k"))
    assert_pipelined(out, joins=1, crossings=2)  # the other crossing is the barrier's
    assert out.select(F.sum("w"), F.count("*")).first() == (2 * sum(range(100_000)), 200_000)
    assert report(out).joins[0].index == "hash"
    assert_one_copy(source_of(out).name, ".build")


def test_runs_again_after_its_frame_was_derived_from_and_dropped(spark: SparkSession) -> None:
    out = left_of(spark).transform(pipelined_join(right_of(spark), "k")).select("v", "w")
    for _ in range(2):
        assert out.count() == 5


def test_scans_by_workers(spark: SparkSession, tmp_path: Path) -> None:
    """The server lists files. A build side is read by its workers, without an uploaded artifact."""
    path = str(tmp_path / "scanned")
    rows = spark.range(1000).selectExpr("id AS k", "id % 7 AS v", "cast(id % 2 AS int) AS part")
    rows.write.partitionBy("part").parquet(path)
    probe = scan_parquet(spark, path, columns=["k", "part"], filters=[("k", ">=", 10)])
    out = probe.transform(pipelined_join(scan_parquet(spark, path, columns=["k", "v"]), "k"))
    lineage = find_lineage(out)
    assert lineage is not None and isinstance(lineage.sources[0], ScannedFiles)
    whole = spark.read.parquet(path)
    assert_same_rows(whole.where("k >= 10").select("k", "part").join(whole.select("k", "v"), "k"), out)
    assert all(task.scan is not None and task.scan.row_groups for task in report(out).tasks)
