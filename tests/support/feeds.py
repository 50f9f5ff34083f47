"""Streams of files, and sinks for the rows that queries over them emit."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tests.support.rows import rows_of

POINTS = "id long, k int, price double, at timestamp"
SPANS = "rid long, d int, low double, high double, time timestamp"
START = datetime(2026, 1, 1)
ON = [("price", ">=", "low"), ("price", "<", "high")]
MATCH = "price >= low and price < high"


class Feed:
    """A stream of files; each file has the rows of one batch."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str) -> None:
        self.spark, self.folder, self.schema = spark, folder, schema
        self._numbers = count()
        folder.mkdir()

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        made = self.folder.with_name(f"{self.folder.name} {next(self._numbers)}")
        self.spark.createDataFrame(rows, self.schema).coalesce(1).write.parquet(str(made))
        [file] = made.glob("*.parquet")
        file.rename(self.folder / f"{made.name}.parquet")
        shutil.rmtree(made)

    def stream(self) -> DataFrame:
        return self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder))

    def table(self) -> DataFrame:
        return self.spark.read.schema(self.schema).parquet(str(self.folder))


def points(draw: random.Random, rows: int, seconds: int = 0) -> list[tuple[Any, ...]]:
    return [
        (
            n,
            draw.choice([None, *range(9)]),
            float(draw.randrange(100)),
            START + timedelta(seconds=seconds + draw.randrange(9)),
        )
        for n in range(rows)
    ]


def spans(draw: random.Random, rows: int, seconds: int = 0) -> list[tuple[Any, ...]]:
    made = []
    for n in range(rows):
        low = float(draw.randrange(100))
        time = START + timedelta(seconds=seconds + draw.randrange(9))
        made.append((n, draw.choice([None, *range(9)]), low, low + draw.randrange(5), time))
    return made


def run(out: DataFrame, checkpoint: Path | str, batches: Callable[[DataFrame, int], None] | None = None) -> Any:
    """Process all available files, and return the terminated query."""
    writer = out.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.foreachBatch(batches or (lambda frame, batch: frame.count())).start()
    query.awaitTermination()
    return query


def bare(schema: StructType) -> list[tuple[Any, ...]]:
    """Return names, types and nullability of a schema, without the metadata, which contains watermarks."""
    return [(field.name, field.dataType, field.nullable) for field in schema.fields]


class Sink:
    """Stores the rows of the last attempt of each batch."""

    def __init__(self) -> None:
        self.batches: dict[int, Counter[str]] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = rows_of(frame)

    def rows(self) -> Counter[str]:
        return sum(self.batches.values(), Counter())
