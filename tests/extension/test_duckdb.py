"""A second oracle: DuckDB on the same files, for joins that Spark itself only runs as nested loops or subqueries.

Conditions are random over small domains, so that bounds coincide, intervals are empty, and duplicates are frequent.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.planned_joins import pipelines_of

COLUMNS = ("i", "j", "d", "x", "y")
COMPARISONS = ("<", "<=", ">", ">=")
KINDS = ("INNER", "LEFT", "LEFT SEMI", "LEFT ANTI", "RIGHT")
PER_KIND = 4

# Not SEMI JOIN: with several inequalities, DuckDB 2.0.0 loses rows of it.
EXISTS = {"LEFT SEMI": "EXISTS", "LEFT ANTI": "NOT EXISTS"}


def written(folder: Path, name: str, rows: int, generator: random.Random) -> None:
    def column(kind: pa.DataType, values: range) -> pa.Array:
        drawn = [None if generator.random() < 0.1 else generator.choice(values) for _ in range(rows)]
        return pa.array(drawn, pa.int64()).cast(kind)

    table = pa.table(
        {
            "id": range(rows),
            "k": column(pa.int32(), range(3)),
            "i": column(pa.int64(), range(12)),
            "j": column(pa.int64(), range(-3, 20)),
            "d": column(pa.int32(), range(15)).cast(pa.date32()),
            "x": column(pa.float64(), range(-5, 15)),
            "y": column(pa.float64(), range(-5, 15)),
        }
    )
    pq.write_table(table, folder / f"{name}.parquet", row_group_size=16)


def comparison(generator: random.Random) -> str:
    number = ("i", "j", "x", "y")
    left, right = generator.choice(number), generator.choice(number)
    if generator.random() < 0.2:
        left = right = "d"
    elif left in "xy" or right in "xy":
        left, right = generator.choice("xy"), generator.choice("xy")
    return f"a.{left} {generator.choice(COMPARISONS)} b.{right}"


def condition(generator: random.Random) -> str:
    parts = [comparison(generator) for _ in range(generator.randrange(1, 4))]
    if generator.random() < 0.4:
        parts.append("a.k = b.k")
    if generator.random() < 0.4:
        parts.append(
            generator.choice(
                [
                    "abs(a.i - b.j) <= 2",
                    "abs(a.x - b.y) < 3",
                    "a.i + b.i > a.j * 2 - b.j",
                    "(a.x * b.x > 3 OR a.i IS NULL)",
                    "a.i <> b.j",
                    "a.x * a.y + b.x * b.y BETWEEN 1 AND 40",
                    "NOT (a.j > b.j AND b.x < 4)",
                    "coalesce(a.x, b.x) < greatest(a.y, b.y)",
                ]
            )
        )
    return " AND ".join(parts)


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("duckdb")
    generator = random.Random(1)
    for name, rows in (("a", 60), ("b", 45)):
        written(folder, name, rows, generator)
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
    return folder


def duckdb_rows(folder: Path, query: str) -> Counter[str]:
    with duckdb.connect() as connection:
        for name in ("a", "b"):
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder}/{name}.parquet')")
        return Counter(map(repr, connection.execute(query).fetchall()))


@pytest.mark.parametrize("kind", KINDS)
def test_random_conditions(spark: SparkSession, folder: Path, kind: str) -> None:
    generator = random.Random(kind)
    conditions = [condition(generator) for _ in range(PER_KIND)]
    columns = "a.id" if kind in EXISTS else "a.id, b.id"

    def query(join: str) -> str:
        return " UNION ALL ".join(
            f"SELECT {number}, {columns} " + join.format(condition=text) for number, text in enumerate(conditions)
        )

    hint = f"/*+ PIPELINED_JOIN({'a' if kind == 'RIGHT' else 'b'}) */"
    out = spark.sql(query(f"FROM a {kind} JOIN b ON {{condition}}").replace("SELECT", f"SELECT {hint}"))
    got = Counter(repr(tuple(row)) for row in out.collect())
    assert len(pipelines_of(out)) > PER_KIND // 2  # Catalyst detects some conditions as always false
    if kind in EXISTS:
        duckdbs = query(f"FROM a WHERE {EXISTS[kind]} (SELECT 1 FROM b WHERE {{condition}})")
    else:
        duckdbs = query(f"FROM a {kind} JOIN b ON {{condition}}")
    expected = duckdb_rows(folder, duckdbs)
    assert got == expected, (conditions, expected - got, got - expected)


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_as_of(spark: SparkSession, folder: Path, comparison: str) -> None:
    """Right values are unique within their group: among equal ones, every engine chooses a different row."""
    distinct = "(SELECT * FROM b QUALIFY count(*) OVER (PARTITION BY k, j) = 1)"
    spark_distinct = "(SELECT * FROM (SELECT *, count(*) OVER (PARTITION BY k, j) n FROM b) WHERE n = 1)"
    direction = "backward" if comparison.startswith(">") else "forward"
    right = spark.sql(f"SELECT id AS other, k, j FROM {spark_distinct}").hint("pipelined_join")
    left = spark.table("a").select("id", "k", "i")
    out = left._joinAsOf(
        right,
        leftAsOfColumn="i",
        rightAsOfColumn="j",
        on="k",
        how="left",
        direction=direction,
        allowExactMatches="=" in comparison,
    ).select("id", "other")
    got = Counter(repr(tuple(row)) for row in out.collect())
    assert pipelines_of(out) == [1]
    query = f"SELECT a.id, b.id FROM a ASOF LEFT JOIN {distinct} b ON a.k = b.k AND a.i {comparison} b.j"
    assert got == duckdb_rows(folder, query)
