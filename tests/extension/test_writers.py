"""Pipelines below a write: the writer reads rows in place, and writes the same as with Spark's own join."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row

from sparkext import report
from tests.support.planned_joins import mode
from tests.support.rows import rows_of
from tests.support.sessions import configured

# Month intervals are missing: Spark has no Python value for them.
TYPES = {
    "flag": "id % 2 = 0",
    "tiny": "tinyint(id % 100 - 50)",
    "short": "smallint(id * 7 - 900)",
    "small": "int(id - 120)",
    "big": "id * 1000003",
    "f4": "float(id) / 7",
    "f8": "id / 3",
    "d9": "cast(id AS decimal(9, 2))",
    "d30": "cast(id * 1000003 AS decimal(30, 6))",
    "text": "concat('wörter ', id)",
    "bin": "encode(concat('b', id), 'utf-8')",
    "day": "date_add(date'1950-01-01', int(id * 97))",
    "at": "timestamp_seconds(id * 9999991)",
    "local": "cast(timestamp_seconds(id * 9999991) AS timestamp_ntz)",
    "span": "make_dt_interval(int(id))",
    "list": "array(id, null, -id)",
    "pair": "named_struct('a', id, 'b', concat('s', id))",
    "pairs": "map(concat('k', id), id)",
}
NOT_FOR = {"json": {"bin"}, "orc": {"span"}, "csv": {"bin", "list", "pair", "pairs", "span"}}


@pytest.fixture(autouse=True)
def _tables(spark: SparkSession) -> Iterator[None]:
    def some(every: int) -> list[str]:
        return [f"CASE WHEN id % {every} != 1 THEN {value} END AS {name}" for name, value in TYPES.items()]

    spark.range(0, 240, numPartitions=2).selectExpr("id", "id % 50 AS k", *some(5)).createOrReplaceTempView("w_facts")
    names = [f"{name} AS b_{name}" for name in TYPES]
    spark.range(40).selectExpr("id AS dk", *some(3)).selectExpr("dk", *names).createOrReplaceTempView("w_dims")
    yield
    for view in ("w_facts", "w_dims"):
        spark.catalog.dropTempView(view)


def joined(spark: SparkSession, leave_out: set[str]) -> DataFrame:
    columns = [column for name in TYPES if name not in leave_out for column in (name, f"b_{name}")]
    hint = "/*+ PIPELINED_JOIN(w_dims) */"
    return spark.sql(f"SELECT {hint} id, k, {', '.join(columns)} FROM w_facts LEFT JOIN w_dims ON k = dk")


INSERTED = "SELECT /*+ PIPELINED_JOIN(w_dims) */ id, b_text FROM w_facts JOIN w_dims ON k = dk"


def is_in_place(spark: SparkSession) -> bool:
    """Return whether the pipeline of the last write emitted rows in place, according to Spark's UI."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plan = executions.last().physicalPlanDescription()
    assert "PipelinedJoin (" in plan, plan
    return "Rows: in place" in plan


@pytest.mark.parametrize("form", ["parquet", "orc", "json", "csv"])
def test_files_are_those_of_sparks_own_join(spark: SparkSession, tmp_path: Path, form: str) -> None:
    left_out = NOT_FOR.get(form, set())
    for name, how in (("ours", "hint"), ("own", "off")):
        with mode(spark, how):
            joined(spark, left_out).write.format(form).save(str(tmp_path / name))
        assert name == "own" or is_in_place(spark)
    schema = joined(spark, left_out).schema
    ours, own = (spark.read.format(form).schema(schema).load(str(tmp_path / name)) for name in ("ours", "own"))
    assert rows_of(ours) == rows_of(own)
    assert ours.count() >= 240


@pytest.mark.parametrize(
    ("clause", "in_place"),
    [("", True), ("PARTITIONED BY (b_text)", False), ("CLUSTERED BY (id) INTO 2 BUCKETS", False)],
)
@pytest.mark.parametrize("writers", [0, 2])
def test_rows_are_copied_where_the_writer_may_sort_them(
    spark: SparkSession, clause: str, in_place: bool, writers: int
) -> None:
    spark.sql(f"CREATE TABLE w_out (id BIGINT, b_text STRING) USING parquet {clause}")
    try:
        with configured(spark, spark_sql_maxConcurrentOutputFileWriters=writers):
            spark.sql(f"INSERT INTO w_out {INSERTED}")
            assert is_in_place(spark) == in_place
            with mode(spark, "off"):
                assert rows_of(spark.table("w_out").select("id", "b_text")) == rows_of(spark.sql(INSERTED))
    finally:
        spark.sql("DROP TABLE w_out")


def test_what_was_written_has_a_report(spark: SparkSession) -> None:
    frame = joined(spark, set())
    frame.write.format("noop").mode("overwrite").save()
    assert is_in_place(spark)
    assert report(frame).joins[0].rows_out >= 240


def test_rows_of_a_query_are_copied(spark: SparkSession) -> None:
    """Spark casts rows to its own class when it collects, sorts or shuffles."""
    frame = joined(spark, set())
    assert "in place" not in str(frame._jdf.queryExecution().executedPlan())
    with mode(spark, "off"):
        expected = rows_of(joined(spark, set()))
    assert rows_of(frame) == expected
    assert rows_of(frame.orderBy("id").repartition(3)) == expected


def texts_source() -> type[DataSource]:
    """Return a sink that writes rows as text, one file per task.

    The class is local to this function, so that it is pickled by value for workers.
    """

    class Texts(DataSource):
        @classmethod
        def name(cls) -> str:
            return "texts"

        def writer(self, schema: object, overwrite: bool) -> DataSourceWriter:
            return TextsWriter(self.options["path"])

    class TextsWriter(DataSourceWriter):
        def __init__(self, path: str) -> None:
            self.path = path

        def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
            import uuid

            (Path(self.path) / uuid.uuid4().hex).write_text("\n".join(repr(tuple(row)) for row in iterator))
            return WriterCommitMessage()

    return Texts


def test_a_writer_of_version_two(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(texts_source())

    def written(name: str, frame: Callable[[], DataFrame]) -> list[str]:
        (tmp_path / name).mkdir()
        frame().write.format("texts").mode("append").option("path", str(tmp_path / name)).save()
        return sorted(line for path in (tmp_path / name).iterdir() for line in path.read_text().splitlines())

    ours = written("ours", lambda: joined(spark, set()))
    assert is_in_place(spark)
    with mode(spark, "off"):
        assert ours == written("own", lambda: joined(spark, set()))
    assert len(ours) >= 240
