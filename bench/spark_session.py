"""A quiet local Spark session for the suites that need one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CROSSING = {"spark.sql.execution.arrow.maxBytesPerBatch": "2147483647"}
"""Unless that is the greatest int, Spark adds up the bytes of each row on its way to Python: see docs/tuning.md."""


@contextmanager
def spark_session(
    tasks: int,
    configure: Callable[[SparkSession.Builder], SparkSession.Builder] | None = None,
    **settings: str,
) -> Iterator[SparkSession]:
    """Start Spark with `tasks` tasks at a time and a third of the free memory as its heap; else its defaults.

    `configure` may change the builder last.
    """
    from sparkext.cli.local_session import local_session
    from sparkext.spark.java import require_java

    require_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    configured = {"spark.master": f"local[{tasks}]", "spark.driver.memory": f"{heap_mib()}m", **settings}
    with step(f"starting Spark, {configured['spark.driver.memory']} of heap"):
        context = local_session("sparkext bench", configured, configure)
        spark = context.__enter__()
    try:
        yield spark
    finally:
        context.__exit__(None, None, None)


@contextmanager
def with_settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set keys of a session that are not set, for a while."""
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            spark.conf.unset(key)


def make_look_changed(path: Path) -> None:
    """Give a file another time of change, so that no index of it is found again."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


def assert_pipelined(frame: DataFrame) -> None:
    """Raise if the plan has no pipeline: what is timed would not be this package."""
    plan = str(frame._jdf.queryExecution().executedPlan())  # type: ignore[operator]
    if "PipelinedJoin [" not in plan:
        raise AssertionError(f"a pipeline was to run:\n{plan}")


def heap_mib() -> int:
    """The heap of a session: a third of what is free, within limits."""
    from sparkext.memory.probes import process_probe

    free = process_probe().headroom()
    return 2048 if free is None else max(1024, min(8192, (free.bytes >> 20) // 3))
