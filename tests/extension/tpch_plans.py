"""TPC-H's queries for the extension's tests: their hinted form, and their plans without incidental details.

As a script, it regenerates the golden plans: `python -m tests.extension.tpch_plans`. Then review the difference.
"""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from pyspark.sql import SparkSession

import sparkext
from bench.cases.queries import tpch
from sparkext.cli.tpch import TABLES, ensure_tables
from tests.support.sessions import configured

SCALE_FACTOR = 0.1
GOLDEN = Path(__file__).parent / "golden"
MODES = ("auto", "hint", "off")

# At this scale Spark would broadcast every table, so the threshold is reduced as well. Metadata in plans is not
# truncated, which would depend on the lengths of paths.
SETTINGS = {
    "spark.sql.autoBroadcastJoinThreshold": "256k",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.maxMetadataStringLength": "10000",
    "spark.sql.debug.maxToStringFields": "100",
}

_INCIDENTAL = (
    (re.compile(r"#\d+L?"), ""),
    (re.compile(r"\[?plan_id=\d+\]?"), ""),
    (re.compile(r"Location: InMemoryFileIndex\(1 paths\)\[[^\]]*\]"), "Location"),
    (re.compile(r"\*\(\d+\) "), "* "),
    (re.compile(r"\[id=\]|, \[\]"), ""),
    (re.compile(r"scalar-subquery|subquery"), "subquery"),
    (re.compile(r"Subquery subquery, "), "Subquery"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


def register_tables(spark: SparkSession, folder: Path) -> None:
    """Register the tables as views."""
    for table in TABLES:
        spark.read.parquet(str(folder / f"{table}.parquet")).createOrReplaceTempView(table)


def settings(spark: SparkSession, mode: str) -> AbstractContextManager[None]:
    """Set the mode and the settings of the golden plans."""
    return configured(spark, {"spark.sparkext.mode": mode, **SETTINGS})


def hinted(query: str) -> str:
    """Add a hint for a pipelined join with every table to every query block."""
    return re.sub(r"\bSELECT\b", f"SELECT /*+ PIPELINED_JOIN({', '.join(TABLES)}) */", query)


def query(number: int, mode: str) -> str:
    """Return the text of a query for a mode; hint mode needs hints."""
    return hinted(tpch.query(number)) if mode == "hint" else tpch.query(number)


def plan(spark: SparkSession, number: int, mode: str) -> str:
    """Return the plan of a query before it runs, without ids and paths."""
    return plan_of(spark, query(number, mode))


def plan_of(spark: SparkSession, sql: str) -> str:
    """Return the plan of any SQL text before it runs, without ids and paths."""
    text = str(spark.sql(sql)._jdf.queryExecution().executedPlan().toString())
    for pattern, replacement in _INCIDENTAL:
        text = pattern.sub(replacement, text)
    return text.rstrip() + "\n"


def golden_file(mode: str, number: int) -> Path:
    """Return the path of a query's golden plan."""
    return GOLDEN / mode / f"q{number:02}.txt"


def main() -> None:
    """Write all golden plans."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = sparkext.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register_tables(spark, ensure_tables(SCALE_FACTOR))
    for mode in MODES:
        with settings(spark, mode):
            for number in tpch.QUERIES:
                path = golden_file(mode, number)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(plan(spark, number, mode))
        print(f"{mode}: {len(tpch.QUERIES)} plans in {GOLDEN / mode}", file=sys.stderr)
    spark.stop()


if __name__ == "__main__":
    main()
