"""A driver in a virtual environment that is not activated. Spark runs functions in another Python, without sparkext."""

from __future__ import annotations

import os

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkext


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = sparkext.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    assert "PYSPARK_PYTHON" not in os.environ

    def which(_):  # type: ignore[no-untyped-def]
        from importlib.util import find_spec

        return f"{os.environ.get('WHICH_PYTHON', 'this one')}, {find_spec('sparkext') and 'with sparkext'}"

    assert spark.sparkContext.parallelize([0], 1).map(which).collect() == ["another, None"]
    assert spark.range(1).select(F.udf(which, "string")("id")).first()[0] == "another, None"
    joined = spark.range(9).join(spark.range(4).hint("pipelined_join"), "id")
    assert sorted(row.id for row in joined.collect()) == [0, 1, 2, 3]
    assert sparkext.declined(joined) == []
    assert "PipelinedJoin [inner" in str(joined._jdf.queryExecution().executedPlan().toString())
    commands = [command_of(child) for child in psutil.Process().children(recursive=True)]
    daemons = {part for command in commands for part in command if part.endswith(".daemon")}
    assert daemons == {"pyspark.daemon", "sparkext.daemon"}, commands
    spark.stop()
    print("all is well")


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):  # the process ends at this moment
        return []


if __name__ == "__main__":
    main()
