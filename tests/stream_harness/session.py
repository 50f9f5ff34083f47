"""The session of a run: without the extension, so that the joins of the oracle are Spark's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.fuzz.session import fuzz_session
from tests.sessions import STREAMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def harness_session() -> Iterator[SparkSession]:
    """Start Spark."""
    with fuzz_session(extended=False, **STREAMS) as spark:
        yield spark
