"""A driver in an environment that is not activated, without the extension: the Python of each function."""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from sparkext import asof_join, pipelined_join, report, scan_parquet, theta_join
from sparkext.errors import EnvironmentProblemError
from sparkext.streams import ordered

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
NOON = datetime.datetime(2024, 1, 1, 12)


def which_python(_: Any) -> str:
    import sys
    from importlib.util import find_spec

    return f"{sys.flags.no_site} {find_spec('numpy')}"


def executables(rows: pa.Table) -> pa.Table:
    import sys

    return pa.table({"time": rows["time"], "python": pa.array([sys.executable] * len(rows), pa.string())})


def check_operators(spark: SparkSession) -> None:
    facts, dim = spark.range(9), spark.range(4).selectExpr("id", "id * 2 AS twice")
    expected = [(number, 2 * number) for number in range(4)]
    joined = facts.transform(pipelined_join(dim, on="id"))
    assert sorted(joined.collect()) == expected
    assert report(joined).joins[0].rows_in == 9
    assert sorted(facts.transform(pipelined_join(dim, on="id", partitioned=True)).collect()) == expected
    unmatched = dim.where("id > 1").transform(pipelined_join(facts.where("id < 4"), on="id", how="right"))
    assert sorted(unmatched.collect(), key=lambda row: row.id) == [
        Row(id=number, twice=2 * number if number > 1 else None) for number in range(4)
    ]
    nearest = facts.transform(asof_join(dim.selectExpr("id AS at"), on=("id", "at")))
    assert sorted(nearest.collect()) == [(number, min(number, 3)) for number in range(9)]
    near = facts.transform(theta_join(dim.selectExpr("id AS other"), lambda a, b: a.id == b.other + 7))
    assert sorted(near.collect()) == [(7, 0), (8, 1)]
    facts.coalesce(1).write.parquet(str(FOLDER / "facts"))
    assert (
        sorted(scan_parquet(spark, str(FOLDER / "facts")).transform(pipelined_join(dim, on="id")).collect()) == expected
    )
    times = spark.createDataFrame([(NOON,)], "time timestamp").withColumn("key", F.lit(1))
    schema = "time timestamp, python string"
    [row] = ordered(times, time="time", operator_key="key", apply=executables, schema=schema).collect()
    assert row.python == sys.executable


def check_refusal(spark: SparkSession, advice: str) -> None:
    facts, bare = spark.range(9), os.path.realpath(sys.executable)
    with pytest.raises(EnvironmentProblemError, match=f"run {bare}, which has no sparkext, numba, .*{advice}"):
        facts.transform(pipelined_join(facts, on="id"))


def main() -> None:
    builder = SparkSession.builder.master("local[2]") if KIND == "classic" else SparkSession.builder.remote("local[2]")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.getOrCreate()
    if KIND == "classic":
        check_classic(spark)
    else:
        check_refusal(spark, "Start the Connect server with PYSPARK_PYTHON")
    spark.stop()
    print("all is well")


def check_classic(spark: SparkSession) -> None:
    spark.sparkContext.setLogLevel("ERROR")
    users = F.udf(which_python, "string", useArrow=False)("id")
    assert spark.range(1).select(users).first()[0] == "1 None"
    check_operators(spark)
    assert spark.range(1).select(users).first()[0] == "1 None", "and not the Python of an operator"
    key = "spark.sql.execution.pyspark.python"  # takes precedence over the Python of a function
    spark.conf.set(key, str(FOLDER / "python3"))
    check_refusal(spark, f"Unset {key}")
    spark.conf.set(key, str(FOLDER / "nowhere"))
    with pytest.raises(EnvironmentProblemError, match=r'Cannot run program ".*nowhere"'):
        spark.range(9).transform(pipelined_join(spark.range(9), on="id"))


if __name__ == "__main__":
    main()
