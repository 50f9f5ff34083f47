"""What Spark compresses on its way to Python (`spark.sql.execution.arrow.compression.codec`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from sparkext.errors import EnvironmentProblemError

T = TypeVar("T")


def decompressed(batches: Iterable[T]) -> Iterator[T]:
    """Yield what comes from Spark, and say what is wrong where Arrow cannot read what Spark compresses.

    Raises
    ------
    EnvironmentProblemError
        In place of an OSError of Arrow's: Spark's LZ4 has no frame where there is nothing to compress.
    """
    try:
        yield from batches
    except OSError as error:
        if "lz4" not in str(error).lower():
            raise
        raise EnvironmentProblemError(
            "Spark compresses what it sends to Python with lz4, and pyarrow does not read that of columns that are all"
            f" null ({error}): set spark.sql.execution.arrow.compression.codec to none or zstd"
        ) from error
