"""Spark sessions of tests, and their settings. Most tests share one session per process: classic, on two cores."""

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
    session = start_session(
        "local[2]", {"spark.app.name": name, "spark.sql.warehouse.dir": str(warehouse), **settings}, configure
    )
    yield session
    session.stop()


def start_session(
    master: str,
    settings: Mapping[str, str],
    configure: Callable[[SparkSession.Builder], SparkSession.Builder] = lambda builder: builder,
) -> SparkSession:
    """Start a classic session that logs errors only; `configure` may change the builder last."""
    builder = SparkSession.builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, object] | None = None, /, **named: object) -> Iterator[None]:
    """Set configuration keys, and restore them afterwards; keywords have underscores instead of dots."""
    values = {**(settings or {}), **{key.replace("_", "."): value for key, value in named.items()}}
    before = {key: spark.conf.get(key, None) for key in values}
    for key, value in values.items():
        spark.conf.set(key, str(value))
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


@contextmanager
def started_with(spark: SparkSession, key: str, value: object) -> Iterator[None]:
    """Set a setting that only an application can set at its start, as if it had, and restore it afterwards."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get(key) if conf.contains(key) else None
    conf.set(key, str(value))
    try:
        yield
    finally:
        conf.remove(key) if before is None else conf.set(key, before)
