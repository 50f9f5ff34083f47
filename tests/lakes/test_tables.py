"""Tables of Delta Lake and Iceberg: workers read their files, and the rows equal those of Spark's own plan."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Event

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.lakes.formats import Lake
from tests.lakes.lake_checks import (
    ROWS,
    assert_fused,
    assert_read_by_spark,
    create,
    executed,
    facts,
    forced,
    indexed,
    joined,
)
from tests.support.planned_joins import assert_like_spark, mode, pipelines_of, plan_of, scans_of
from tests.support.rows import rows_of

pytestmark = pytest.mark.reduced("values", reason="a table takes seconds to write in either format")
_LEFT_OUT = pytest.mark.whole(reason="a minute each")


def test_every_type(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(lake, spark, facts(spark))
    assert_fused(spark, dims, lambda: spark.table(table))
    for how in ("left", "left_semi", "left_anti"):
        assert_like_spark(spark, lambda how=how: joined(dims, lambda: spark.table(table), how))


def test_deleted_rows_of_several_row_groups_and_splits(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    small = {
        "delta": {},
        "iceberg": {"write_parquet_row-group-size-bytes": "2000", "read_split_target-size": "3000"},
    }[lake.name]
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4000")
    spark.sparkContext._jsc.hadoopConfiguration().set("parquet.block.size", "2000")
    try:
        table = create(lake, spark, facts(spark, rows=2000), files=2, **small)
        read = partial(spark.table, table)
        for condition in ("id % 10 = 3", "id BETWEEN 500 AND 700", "f8 IS NULL"):
            spark.sql(f"DELETE FROM {table} WHERE {condition}")
            assert_fused(spark, dims, read, "deleted rows")
        spark.sql(f"UPDATE {table} SET s = 'new', k = k + 1 WHERE id % 7 = 2")
        df = assert_fused(spark, dims, read, "deleted rows")
        assert df.rdd.getNumPartitions() > 2
        assert_fused(spark, dims, lambda: read().where("id > 1200 AND s LIKE 'w%'").select("k", "s", "id"))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.sparkContext._jsc.hadoopConfiguration().unset("parquet.block.size")


def test_a_table_without_rows(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(lake, spark, facts(spark))
    spark.sql(f"DELETE FROM {table} WHERE id % 2 = 0")
    spark.sql(f"DELETE FROM {table} WHERE id >= 0")
    assert_like_spark(spark, lambda: joined(dims, lambda: spark.table(table)))
    assert_like_spark(spark, lambda: indexed(dims, lambda: spark.table(table)))


def test_columns_that_come_and_go(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(lake, spark, facts(spark).select("id", "k", "s", "f8"), **lake.renames)
    read = partial(spark.table, table)
    spark.sql(f"ALTER TABLE {table} ADD COLUMN later string")
    assert_fused(spark, dims, read)
    spark.sql(f"INSERT INTO {table} SELECT id + 1000, id % 30, 's', 0.5D, 'later' FROM range(50)")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN s TO f8s")
    assert_fused(spark, dims, read)
    spark.sql(f"ALTER TABLE {table} DROP COLUMN f8")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN f8s TO f8")  # the former name of another column
    assert_fused(spark, dims, read)
    spark.sql(f"ALTER TABLE {table} ADD COLUMN s int")  # its own former name
    spark.sql(f"INSERT INTO {table} SELECT id + 2000, id % 30, 'text', 'later', 7 FROM range(20)")
    assert_fused(spark, dims, read)
    spark.sql(f"DELETE FROM {table} WHERE id % 3 = 0")
    assert_fused(spark, dims, lambda: read().where("s IS NULL OR f8 > 'u'"), "deleted rows")


def test_odd_names(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    odd = facts(spark).selectExpr("id", "k", "s AS `a b,;{}()=.ä`", "f8 AS `file_path`", "flag AS `_pos2`")
    table = create(lake, spark, odd, **lake.renames)
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    assert_fused(spark, dims, lambda: spark.table(table).where("`a b,;{}()=.ä` > 'w' AND file_path > 3"))


@pytest.mark.parametrize("column", ["k", "s", "day", "d18", "flag"])
def test_partitions(lake: Lake, spark: SparkSession, dims: DataFrame, column: str) -> None:
    table = create(lake, spark, facts(spark, rows=60), partitioned=column, files=1)
    read = partial(spark.table, table)
    assert_fused(spark, dims, read)
    spark.sql(f"DELETE FROM {table} WHERE id % 4 = 1")
    assert_fused(spark, dims, lambda: read().where(f"{column} IS NOT NULL"))
    assert_fused(spark, dims, lambda: read().where(f"{column} IS NULL").select("k", "id"))


def test_older_states(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(lake, spark, facts(spark))
    first = lake.state(spark, table)
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    second = lake.state(spark, table)
    facts(spark, ROWS, 50).writeTo(table).append()
    counted = set()
    for state in (first, second, lake.state(spark, table)):
        df = assert_fused(
            spark, dims, lambda state=state: spark.sql(f"SELECT * FROM {table} VERSION AS OF {state}"), str(state)
        )
        counted.add(df.count())
    assert len(counted) == 3


def test_indexes_follow_the_table(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(lake, spark, facts(spark, rows=40))
    for change in (
        f"DELETE FROM {table} WHERE id = 7",
        f"INSERT INTO {table} SELECT * FROM {table} WHERE id < 5",
        f"UPDATE {table} SET s = 'changed' WHERE id BETWEEN 10 AND 12",
        f"DELETE FROM {table} WHERE id = 8",
    ):
        assert_fused(spark, dims, lambda: spark.table(table))
        spark.sql(change)
    assert_fused(spark, dims, lambda: spark.table(table))


def test_a_table_that_changes_after_it_was_planned(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    def counts() -> tuple[int, int]:
        table = create(lake, spark, facts(spark))
        df = joined(dims, lambda: spark.table(table))
        plan_of(df)
        spark.sql(f"DELETE FROM {table} WHERE id % 2 = 0")
        facts(spark, ROWS, 50).writeTo(table).append()
        return len(df.collect()), len(joined(dims, lambda: spark.table(table)).collect())

    ours = counts()
    with mode(spark, "off"):
        assert ours == counts()


def test_a_file_that_is_gone(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(lake, spark, facts(spark))
    df = joined(dims, lambda: spark.table(table))
    assert scans_of(df)[0][1]
    files = lake.data_files(spark, table)
    assert files
    for file in files:
        file.unlink()
    with pytest.raises((PySparkException, Py4JJavaError), match=r"FAILED_READ_FILE\.FILE_NOT_EXIST"):
        df.collect()


@pytest.mark.parametrize("changes", ["overwritten", "changed"])
def test_old_files_deleted_while_queries_run(lake: Lake, spark: SparkSession, dims: DataFrame, changes: str) -> None:
    """Each query reads one consistent version, or fails because of a missing file."""

    table = create(lake, spark, spark.range(400).selectExpr("CAST(id % 40 AS INT) AS k", "0 AS state"), files=4)
    statements = {
        "overwritten": [
            f"INSERT OVERWRITE {table} SELECT CAST(id % 40 AS INT), {number} FROM range(400)" for number in (1, 2, 3)
        ],
        "changed": [
            f"DELETE FROM {table} WHERE k % 7 = 2",
            f"UPDATE {table} SET state = 1 WHERE k % 5 = 1",
            lake.compaction(table),
            f"""MERGE INTO {table} t USING (SELECT DISTINCT k FROM {table} WHERE k > 20) o ON t.k = o.k
                WHEN MATCHED AND o.k % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET state = 2""",
            f"INSERT INTO {table} SELECT k, 3 FROM {table} WHERE k % 2 = 0",
        ],
    }[changes]
    times = Counter(row.dk for row in dims.collect())
    aside = spark.newSession()
    aside.conf.set("spark.sparkext.mode", "off")

    def answer() -> tuple[tuple[int, int], ...]:
        counts: Counter[int] = Counter()
        for k, number in aside.table(table).collect():
            counts[number] += times[k]
        return tuple(sorted(counts.items()))

    found: Counter[object] = Counter()
    over = Event()

    def ask() -> None:
        while not over.is_set():
            df = joined(dims, lambda: spark.table(table)).groupBy("state").count()
            try:
                found[tuple(sorted(map(tuple, df.collect())))] += 1
            except (PySparkException, Py4JJavaError) as error:  # PySpark's form of Spark's own error for a file
                assert re.search(r"No such file|NOT_EXIST|does not exist|FileReadError", str(error)), error
                found["a file that is gone"] += 1

    def wait_for_a_query() -> None:
        """Wait until two more queries have ended, so that at least one of them has begun after the call."""
        awaited = found.total() + 2
        while found.total() < awaited and not asking.done():
            time.sleep(0.05)

    expected = {answer()}
    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask)
        try:
            for statement in statements:
                spark.sql(statement)
                expected.add(answer())
                wait_for_a_query()
                lake.vacuum(spark, table)
        finally:
            over.set()
        asking.result()
    ((_, fused, _),) = scans_of(joined(dims, lambda: spark.table(table)))
    assert fused
    states = {answer for answer in found if answer != "a file that is gone"}
    assert states <= expected, found
    assert len(states) > 1, found


def test_what_tells_of_files(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(lake, spark, facts(spark))
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    for column, reason in lake.file_columns.items():
        assert_read_by_spark(spark, dims, lambda column=column: spark.table(table).selectExpr("k", column), reason)


WRITES = {
    "merge": """MERGE INTO {table} t USING (SELECT id AS i, k + 1 AS k2, s AS s2 FROM {other}) o ON t.id = o.i
        WHEN MATCHED AND o.i % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET k = o.k2, s = 'merged'
        WHEN NOT MATCHED THEN INSERT (id, k, s) VALUES (o.i, o.k2, o.s2)
        WHEN NOT MATCHED BY SOURCE AND t.id % 5 = 0 THEN UPDATE SET s = 'left'""",
    "update": "UPDATE {table} SET s = 'updated' WHERE id IN (SELECT id FROM {other} WHERE k > 10)",
    "delete": "DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {other} o WHERE o.id = {table}.id AND o.k > 10)",
}


@pytest.mark.parametrize("writes", ["in place", "anew"])
@pytest.mark.parametrize("statement", WRITES)
def test_statements_that_write(lake: Lake, spark: SparkSession, statement: str, writes: str) -> None:
    """Delta's plans join the affected files, Iceberg's the positions of rows: the resulting tables are equal."""
    if lake.name == "delta" and statement in ("update", "delete"):
        pytest.skip("Delta has no subqueries in UPDATE and DELETE")
    properties = lake.rewrites if writes == "anew" else {}
    states = []
    for pipelined in (True, False):
        table = create(lake, spark, facts(spark).select("id", "k", "s"), **properties)
        other = create(lake, spark, facts(spark, 150, 250).select("id", "k", "s"))
        spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
        before = lake.state(spark, table)
        last = max(executed(spark))
        with forced(spark) if pipelined else mode(spark, "off"):
            spark.sql(WRITES[statement].format(table=table, other=other))
        assert any("PipelinedJoin" in plan for plan in executed(spark, last).values()) is pipelined
        with mode(spark, "off"):
            now = rows_of(spark.table(table))
            then = rows_of(spark.sql(f"SELECT * FROM {table} VERSION AS OF {before}"))
        states.append((now, then, lake.history(spark, table)))
    assert states[0] == states[1]
    assert states[0][0] != states[0][1]


def test_groups_above_joins(lake: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(lake, spark, facts(spark, rows=2000))
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")

    def query() -> DataFrame:
        both = joined(dims, lambda: spark.table(table))
        return both.groupBy("name").agg(F.count("*"), F.sum("d18"), F.max("s"), F.min("day"))

    with forced(spark):
        df = assert_like_spark(spark, query)
        assert pipelines_of(df) == [1], plan_of(df)


class History:
    """A table with random changes."""

    def __init__(self, lake: Lake, spark: SparkSession, seed: int) -> None:
        self._lake, self._spark, self._draw = lake, spark, random.Random(seed)
        self.columns = ["s", "f8"]
        self._ids = ROWS
        self._names = count()
        by = self._draw.choice(["", "", "flag", *lake.transforms])
        begun = facts(spark).selectExpr("id", "k", "s", "CAST(f8 AS STRING)", "flag")
        self.table = create(lake, spark, begun, partitioned=by, **lake.renames)

    def change(self) -> str:
        """Change the table, and return the kind of change."""
        kinds = [self._append, self._delete, self._delete, self._update, self._merge, self._add, self._compact]
        kinds += [self._rename, self._drop] if len(self.columns) > 1 else [self._add]
        statement = self._draw.choice(kinds)()
        self._spark.sql(statement)
        return statement

    def _rows(self, new: int) -> str:
        """Return rows with new ids, some of which may exist already."""
        first = self._draw.randrange(self._ids)
        self._ids = max(self._ids, first + new)
        values = ", ".join(f"CAST(concat('1', id % 9) AS STRING) AS `{name}`" for name in self.columns)
        return f"SELECT id, CAST(id % 40 AS INT) AS k, id % 2 = 0 AS flag, {values} FROM range({first}, {first + new})"

    def _append(self) -> str:
        return f"INSERT INTO {self.table} BY NAME {self._rows(self._draw.randrange(1, 60))}"

    def _delete(self) -> str:
        low = self._draw.randrange(self._ids)
        high = low + self._draw.randrange(30)
        return f"DELETE FROM {self.table} WHERE id BETWEEN {low} AND {high} OR id % 37 = {low % 37}"

    def _update(self) -> str:
        name = self._draw.choice(self.columns)
        return f"UPDATE {self.table} SET `{name}` = '7', k = k + 1 WHERE id % 11 = {self._draw.randrange(11)}"

    def _merge(self) -> str:
        return f"""MERGE INTO {self.table} t USING ({self._rows(50)}) o ON t.id = o.id
            WHEN MATCHED AND o.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET k = o.k
            WHEN NOT MATCHED THEN INSERT *"""

    def _add(self) -> str:
        self.columns.append(f"c {next(self._names)}")
        return f"ALTER TABLE {self.table} ADD COLUMN `{self.columns[-1]}` string"

    def _rename(self) -> str:
        at = self._draw.randrange(len(self.columns))
        old, self.columns[at] = self.columns[at], self._draw.choice(["s", "f8", "x.y", "S2"]) + str(next(self._names))
        return f"ALTER TABLE {self.table} RENAME COLUMN `{old}` TO `{self.columns[at]}`"

    def _drop(self) -> str:
        name = self.columns.pop(self._draw.randrange(len(self.columns)))
        return f"ALTER TABLE {self.table} DROP COLUMN `{name}`"

    def _compact(self) -> str:
        return self._lake.compaction(self.table)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=_LEFT_OUT) for n in (1, 2))])
def test_random_histories(lake: Lake, spark: SparkSession, dims: DataFrame, seed: int) -> None:
    history = History(lake, spark, seed)
    done = []
    for _ in range(8):
        done.append(history.change())
        print(f"seed {seed}:", *done, sep="\n")  # shown if the test fails
        assert_fused(spark, dims, lambda: spark.table(history.table))
    states = lake.states(spark, history.table)
    state = random.Random(seed).choice(states)
    assert_like_spark(
        spark, lambda: joined(dims, lambda: spark.sql(f"SELECT id, k FROM {history.table} VERSION AS OF {state}"))
    )
