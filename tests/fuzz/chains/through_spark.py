"""Runs a case through Spark: planned by the session extension, and by Spark alone."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import sparkext
from tests.fuzz.chains.cases import Case, spark_sql
from tests.fuzz.chains.pipeline import Outcome
from tests.support.sessions import configured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.sparkext.mode": "hint",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.session.timeZone": "America/New_York",
}
_PIPELINE = re.compile(r"PipelinedJoin \[(.*?)\] (scan=\w+(?: from Spark)?)")
_SPARK_JOIN = re.compile(r"\b(?:\w+Hash|SortMerge|BroadcastNestedLoop)Join\b|\bCartesianProduct\b")


class SparkRunner:
    """Runs cases in a session with the extension, over Parquet files in `folder`."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def run(self, case: Case) -> tuple[Outcome, pa.Table | None]:
        """Return the outcome of the extension's plan, and the rows of Spark's own, or None if those are indeterminate.

        Spark's own as-of joins may return any of several equally near rows.
        """
        generator = random.Random(f"spark {case.name}")
        place = self._folder / case.name.replace(":", "-")
        is_ordered = any(join.as_of for join in case.joins)
        try:
            # The order of rows decides between equally near ones, and Spark reads the largest file first.
            self._write(case, place, generator, most_files=1 if is_ordered else 3)
            with configured(self._spark, {**case.settings, **_session_settings(generator)}):
                ours = self._spark.sql(spark_sql(case))
                got = Outcome(self._rows(case, ours), _paths(ours))
            if is_ordered:
                return got, None
            with configured(self._spark, {"spark.sparkext.mode": "off"}):
                return got, self._rows(case, self._spark.sql(spark_sql(case)))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _write(self, case: Case, place: Path, generator: random.Random, most_files: int) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        for number, table in enumerate(case.tables):
            folder = place / f"t{number}"
            folder.mkdir(parents=True)
            files = min(most_files, generator.choice((1, 1, 2, 3)))
            for file in range(files):
                start, stop = (table.num_rows * bound // files for bound in (file, file + 1))
                part = table.slice(start, stop - start)
                pq.write_table(part, folder / f"{file}.parquet", row_group_size=generator.choice((5, 100, 10_000)))
            schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
            self._spark.read.schema(schema).parquet(str(folder)).createOrReplaceTempView(f"t{number}")

    def _rows(self, case: Case, frame: DataFrame) -> pa.Table:
        types = case.columns(len(case.joins))
        return frame.toArrow().cast(pa.schema([(name, types[name]) for name in case.outputs]))


def _session_settings(generator: random.Random) -> dict[str, object]:
    return {
        "spark.sparkext.scan.fused": generator.choice(("true", "true", "false")),
        "spark.sql.parquet.enableVectorizedReader": generator.choice(("true", "true", "false")),
        "spark.sql.adaptive.enabled": generator.choice(("true", "false")),
        "spark.sql.execution.arrow.maxRecordsPerBatch": generator.choice((3, 100, 10_000)),
    }


def _paths(frame: DataFrame) -> Counter[str]:
    """Count the pipelined and other joins of an executed query."""
    plan = frame._jdf.queryExecution().executedPlan()
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.executedPlan()
    text = plan.toString()
    found: Counter[str] = Counter()
    for joins, scan in _PIPELINE.findall(text):
        found["joins in pipelines"] += joins.count("; ") + 1
        found[scan] += 1
    found["joins by Spark"] += len(_SPARK_JOIN.findall(text))
    found.update(f"declined: {reason}" for reason in sparkext.declined(frame))
    return found
