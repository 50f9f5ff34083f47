"""The Spark session that tests share: classic, on two cores, one per process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # Otherwise, every aggregate and broadcast of a few rows would allocate and clear 64 MB.
    "spark.buffer.pageSize": "1m",
    # Not UTC, and with summer time, to detect timestamps that are shifted.
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sparkext.debug.sessions": "true",
}

_OLD_PACKAGE = pyspark.__version__.startswith("4.0.")
STREAMS = {
    "spark.sql.streaming.pollingDelay": "5ms",
    # The default manager renames files by Hadoop's FileContext, which starts about six `readlink` processes per file:
    # dozens of processes per batch.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    f"{'' if _OLD_PACKAGE else 'checkpointing.'}FileSystemBasedCheckpointFileManager",
}
"""Settings of sessions with many small streaming queries."""


@contextmanager
def shared_session(
    name: str,
    warehouse: Path,
    configure: Callable[[SparkSession.Builder], SparkSession.Builder],
    settings: Mapping[str, str] = SETTINGS,
) -> Iterator[SparkSession]:
    """Start a session, and stop the session of previous tests; `configure` may change the builder last."""
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()
    builder = SparkSession.builder.master("local[2]").appName(name).config("spark.sql.warehouse.dir", str(warehouse))
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
