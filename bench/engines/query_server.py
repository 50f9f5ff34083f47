"""A Spark session in its own process: reads requests from stdin and writes answers to stdout, in JSON.

The parent's side is `bench.engines.query_process`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.engines.result_rows import plain
from bench.engines.spark_session import with_settings
from bench.engines.views import Views
from sparkext.cli.local_session import QUIET_SETTINGS
from sparkext.spark.extension import find_planned_runs, has_extension

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    """Start Spark as the first line of stdin requests; then answer each line until stdin ends."""
    # Redirects other output on stdout to stderr, so that stdout receives only answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = _start(json.loads(sys.stdin.readline()))
    _write(answers, {"version": spark.version})
    for line in sys.stdin:
        try:
            answer = _answer(spark, json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        _write(answers, answer)
    spark.stop()


def _start(request: dict[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    from sparkext import configure

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("sparkext bench")
    for key, value in {**QUIET_SETTINGS, **request["settings"]}.items():
        builder = builder.config(key, value)
    spark = (configure(builder) if request["extended"] else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _answer(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """Run a query, and return its rows, its seconds, and facts about its plan.

    `seconds` are from listing the files until every row is in Python; `planning` are those of analysis, optimiser and
    planner, without the replanning of adaptive execution.
    """
    views = Views.of_files(spark, {name: Path(path) for name, path in request["tables"].items()})
    with with_settings(spark, request["conf"]):
        started = time.perf_counter()
        frame = views.frame(request["sql"], request["cold"])
        rows = frame.collect()
        seconds = time.perf_counter() - started
        return {
            "rows": [[plain(value) for value in row] for row in rows],
            "seconds": seconds,
            "planning": _planning_seconds(frame),
            "peak_bytes": _peak_bytes(),
            "pipelines": len(find_planned_runs(frame)) if has_extension(spark) else 0,
            **_describe_plan(frame),
        }


def _planning_seconds(frame: DataFrame) -> float:
    phases = frame._jdf.queryExecution().tracker().phases().values().iterator()  # type: ignore[operator]
    total = 0
    while phases.hasNext():
        total += phases.next().durationMs()
    return total / 1000


def _describe_plan(frame: DataFrame) -> dict[str, Any]:
    """Return the final plan, and how many of its operators are joins, and Comet's.

    The text of an adaptive plan also contains the initial plan.
    """
    plan = str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]
    operators = plan.partition("== Initial Plan ==")[0].splitlines()
    joins = [line for line in operators if "Join" in line]
    return {
        "plan": plan,
        "joins": len(joins),
        "native_joins": sum("Comet" in line for line in joins),
        "native": sum("Comet" in line for line in operators),
    }


def _peak_bytes() -> int:
    """Return the sum of the peak resident memory of this process and of all its descendants that run now."""
    own = psutil.Process()
    return sum(_peak_of(process.pid) for process in [own, *own.children(recursive=True)])


def _peak_of(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def _write(stream: Any, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
