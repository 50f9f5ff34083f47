"""Local Spark sessions with little log output, for the suites that need Spark."""

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
"""With any value but the greatest int, Spark adds up the bytes of each row that it sends to Python: docs/tuning.md."""


@contextmanager
def spark_session(
    tasks: int,
    configure: Callable[[SparkSession.Builder], SparkSession.Builder] | None = None,
    **settings: str,
) -> Iterator[SparkSession]:
    """Start Spark with its defaults, except `tasks` concurrent tasks and a third of the free memory as heap.

    `settings` override both. `configure` is applied to the builder last.
    """
    from sparkext.cli.local_session import start_local_session
    from sparkext.spark.java import require_java

    require_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    configured = {"spark.master": f"local[{tasks}]", "spark.driver.memory": f"{heap_mib()}m", **settings}
    with step(f"starting Spark, {configured['spark.driver.memory']} of heap"):
        context = start_local_session("sparkext bench", configured, configure)
        spark = context.__enter__()
    try:
        yield spark
    finally:
        context.__exit__(None, None, None)


@contextmanager
def with_settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set keys of a session for the duration of the block, and unset them afterwards."""
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            spark.conf.unset(key)


def make_look_changed(path: Path) -> None:
    """Change the modification time of a file, so that its cached indexes do not apply."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


def assert_pipelined(frame: DataFrame) -> None:
    """Raise `AssertionError` if the plan has no pipeline, as the timed plan would be Spark's."""
    plan = str(frame._jdf.queryExecution().executedPlan())  # type: ignore[operator]
    if "PipelinedJoin [" not in plan:
        raise AssertionError(f"a pipeline was to run:\n{plan}")


def heap_mib() -> int:
    """Return the heap of a session: a third of the free memory, between 1 and 8 GiB; 2 GiB if it is unknown."""
    from sparkext.memory.probes import process_probe

    free = process_probe().headroom()
    return 2048 if free is None else max(1024, min(8192, (free.bytes >> 20) // 3))
