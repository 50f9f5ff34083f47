"""Batches that Spark compresses when it sends them to Python (`spark.sql.execution.arrow.compression.codec`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from sparkext.errors import EnvironmentProblemError

T = TypeVar("T")


def read_compressed(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches from Spark, and explain the error if Arrow cannot decompress them.

    Raises
    ------
    EnvironmentProblemError
        Replaces an OSError of Arrow: Spark's LZ4 writes no frame if there is nothing to compress.
    """
    try:
        yield from batches
    except OSError as error:
        if "lz4" not in str(error).lower():
            raise
        raise EnvironmentProblemError(
            "Spark sends rows to Python that are compressed with lz4, and pyarrow cannot read such columns if all"
            f" values are null ({error}): set spark.sql.execution.arrow.compression.codec to none or zstd"
        ) from error
