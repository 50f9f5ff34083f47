"""The session of a run. It does not have the extension, so that the oracle's joins are Spark's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.fuzz.session import fuzz_session
from tests.support.sessions import STREAMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def harness_session() -> Iterator[SparkSession]:
    """Start a session, and yield it."""
    with fuzz_session(extended=False, **STREAMS) as spark:
        yield spark
