"""The Spark session with Comet, in its own process: reads requests from stdin and writes answers to stdout, in JSON.

Its environment has only PySpark 3.5, so this module imports no other package except the standard library.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from bench.engines.result_rows import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> None:
    """Start Spark with the settings in the first line of stdin; then answer each line until stdin ends."""
    # Redirects other output on stdout to stderr, so that stdout receives only answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    first = json.loads(sys.stdin.readline())
    spark = _started(first["settings"])
    _say(answers, {"version": spark.version})
    for line in sys.stdin:
        _say(answers, _answered(spark, json.loads(line)))
    spark.stop()


def _started(settings: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("comet")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _answered(spark: SparkSession, question: dict[str, Any]) -> dict[str, Any]:
    for key, value in question["conf"].items():
        spark.conf.set(key, value)
    for name, path in question["tables"].items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    frame = spark.sql(question["sql"])
    rows = [[plain(value) for value in row] for row in frame.collect()]
    plan = str(frame._jdf.queryExecution().executedPlan().toString())
    operators = _final(plan).splitlines()
    joins = [line for line in operators if "Join" in line]
    counted = {"joins": len(joins), "native_joins": _native(joins), "native": _native(operators)}
    return {"rows": rows, "plan": plan, **counted}


def _native(operators: list[str]) -> int:
    return sum("Comet" in line for line in operators)


def _final(plan: str) -> str:
    """Return the final plan; the text of an adaptive plan also contains the initial plan."""
    return plan.partition("== Initial Plan ==")[0]


def _say(stream: Any, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
