"""A quiet local Spark session, for the commands of the package."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkext.errors import EnvironmentProblemError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUIET_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Settings of a local session without a user interface, reachable from this machine alone."""


@contextmanager
def start_local_session(
    name: str,
    settings: Mapping[str, str],
    configure: Callable[[SparkSession.Builder], SparkSession.Builder] | None = None,
) -> Iterator[SparkSession]:
    """Start a local Spark session that writes nothing to the terminal, and stop it at the end.

    `configure` is applied last to the builder. The stderr of the JVM and of workers is redirected to a file. If Spark
    does not start, an `EnvironmentProblemError` shows the last 20 lines of that file.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in {**QUIET_SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    if configure is not None:
        builder = configure(builder)
    with tempfile.TemporaryFile() as log:
        try:
            with _redirect_stderr(log.fileno()):
                spark = builder.getOrCreate()
        except Exception as error:
            log.seek(0)
            log_end = "".join(log.read().decode(errors="replace").splitlines(keepends=True)[-20:])
            raise EnvironmentProblemError(f"Spark did not start: {summarise_error(error)}\n{log_end}") from error
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        spark.stop()


@contextmanager
def _redirect_stderr(descriptor: int) -> Iterator[None]:
    """Redirect the stderr of this process, and of children that it starts meanwhile, to a file."""
    sys.stderr.flush()
    terminal = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)


def summarise_error(error: Exception) -> str:
    """Return the class and the first line of an error, without the traceback."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
