"""A session with a small local disk that is filled: which queries still run, and which files remain."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.extension.conftest import SETTINGS
from tests.support.planned_joins import assert_like_spark, assert_pipelined, plan_of
from tests.support.rows import rows_of
from tests.support.sessions import configured, start_session

FULL = "No space left on device"
FELL_BACK = "fell back to Spark's own joins"


def joined(spark: SparkSession, probe: DataFrame, build: DataFrame) -> DataFrame:
    return probe.join(build.hint("pipelined_join"), F.col("k") == F.col("dk"))


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Fill the disk to the last page."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            pass
    try:
        yield
    finally:
        filler.unlink()


def files(disk: Path) -> set[Path]:
    """Return the files of joins: build sides, their indexes, reports."""
    return {path for path in disk.rglob("*") if path.is_file() and "sparkext" in str(path.relative_to(disk))}


def a_build_side_that_fills_the_drivers_disk(spark: SparkSession, disk: Path) -> None:
    before = files(disk)
    large = spark.range(0, 100_000, 1, 4).selectExpr("id AS dk", "repeat(uuid(), 2) AS s")
    out = joined(spark, spark.range(100).selectExpr("id AS k"), large).select("k", F.length("s"))
    assert_pipelined(out, 1)
    assert rows_of(out) == Counter(f"({number}, 72)" for number in range(100))
    assert FELL_BACK in plan_of(out) and FULL in plan_of(out)
    assert files(disk) == before


def disks_that_are_full_already(spark: SparkSession, disk: Path, folder: Path) -> None:
    """Rows from the JVM cannot be published, so that Spark joins them. For files, each worker has its own index."""
    spark.range(2000).selectExpr("id AS k", "concat('f', id) AS f").write.parquet(str(folder / "facts"))
    spark.range(1000).selectExpr("id * 2 AS dk", "concat('d', id) AS d").write.parquet(str(folder / "dims"))
    facts, dims = (spark.read.parquet(str(folder / name)) for name in ("facts", "dims"))
    rows = spark.range(1000).selectExpr("id * 2 AS dk", "concat('r', id) AS r")
    expected = rows_of(joined(spark, facts, rows))
    with configured(spark, spark_sparkext_mode="off"):
        from_files = rows_of(joined(spark, facts, dims))
    before = files(disk)
    with filled(disk):
        out = joined(spark, facts, dims)
        assert_pipelined(out, 1)
        assert rows_of(out) == from_files
        out = joined(spark, facts, rows)
        assert rows_of(out) == expected
        assert FELL_BACK in plan_of(out) and FULL in plan_of(out)
    left = [path.name for path in files(disk) - before if path.suffix != ".lock" and path.name != "eviction"]
    assert not left, left
    assert rows_of(joined(spark, facts, rows)) == expected


def an_exchange_on_a_full_disk(spark: SparkSession, disk: Path) -> None:
    """The exchange fails like Spark's own shuffle, leaves no files, and succeeds once the disk has space again."""
    probe, build = (spark.range(50_000).selectExpr(f"id AS {name}", f"uuid() AS {name}s") for name in ("k", "dk"))
    before = {path for path in disk.rglob("*") if path.is_file()}
    with configured(spark, spark_sparkext_partitioned="always"):
        out = joined(spark, probe, build).agg(F.count("*"))
        assert "partitioned=" in plan_of(out)
        with filled(disk):
            try:
                raise AssertionError(f"on a full disk: {rows_of(out)}")
            except Exception as error:
                assert FULL in str(error), error
        left = {path for path in disk.rglob("*") if path.is_file()} - before
        assert not [path for path in left if path.stat().st_size and path.name.startswith("shuffle")], left
        assert rows_of(joined(spark, probe, build).agg(F.count("*"))) == Counter(["(50000,)"])


def main(disk: Path, folder: Path) -> None:
    spark = start_session(
        "local[2]", {**SETTINGS, "spark.local.dir": str(disk), "spark.sparkext.mode": "hint"}, sparkext.configure
    )
    a_build_side_that_fills_the_drivers_disk(spark, disk)
    disks_that_are_full_already(spark, disk, folder)
    an_exchange_on_a_full_disk(spark, disk)
    small = spark.range(20).selectExpr("id AS k"), spark.range(4).selectExpr("id AS dk")
    assert_pipelined(assert_like_spark(spark, lambda: joined(spark, *small)), 1)
    spark.stop()
    print("all is well")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
