"""Joins of two streams, compared with the joins that Spark allows: rows per second, batch times, and their growth."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.engines.spark_session import spark_session
from bench.harness import Bench, Case, WrongAnswerError, step
from bench.report.fit import power_law
from sparkext.reports.stream_report import StreamReport, read_stream_report
from sparkext.wording import format_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = """\
Measured: the duration that Spark reports for each batch, from looking for new files until the batch is committed. Every
batch is one Parquet file of each side, with half of its rows each. Every batch ends in a count and two sums, which are
added up and compared with a join of all rows. The first eight batches load the state. They are not counted, and neither
are the next two.
Ranges: points in intervals of width 5, so that a row matches one row of the other side on average. Spark refuses such a
join of streams. It allows the following alternative, with RocksDB as state store: each interval is assigned to all
buckets that it overlaps, each point to its bucket, and both are joined by bucket. Keys: points are joined with equal
lower ends of intervals.
Skew: points follow Zipf's law. Intervals do not, because the result would then grow with the skew.
Left out: starting Spark and the query, compilation, generating files."""

LOADS = 8
_SKIPPED = 2
_WIDTH = 5
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SCHEMAS = ("id long, x long", "rid long, low long, high long")
_GROWTH = (1, 2, 4, 8)
_EXPONENTS = (0.0, 0.5, 1.0, 1.5, 2.0)


def cases() -> list[Case]:
    """Return the cases: throughput on ranges and keys, latency of small batches, and the effects of state and skew."""
    options: dict[str, Any] = {"scaled": False, "named": True}
    return [
        Case("streams.ranges", "points in intervals, both streams: rows a second", _run_ranges, **options),
        Case("streams.keys", "two streams on equal keys: rows a second", _run_keys, **options),
        Case("streams.latency", "batches of 10,000 rows, beside empty stateful ones", _run_latency, **options),
        Case("streams.growth", "the time of a batch while the state grows eightfold", _run_growth, **options),
        Case("streams.skew", "points in intervals, points by Zipf's law", _run_skew, **options),
    ]


@dataclass(frozen=True)
class Feed:
    """Files of both sides: `state` rows in `LOADS` batches, then `batches` of `rows` rows."""

    folder: Path
    state: int
    rows: int
    batches: int
    zipf: float = 0.0

    def written(self) -> Feed:
        """Write all files, in the order in which a stream reads them; return the feed."""
        draw = np.random.default_rng(1)
        sizes = [self.state // LOADS] * LOADS + [self.rows] * self.batches
        domain = max(1, (self.state + self.rows * self.batches) // 2)
        for number, size in enumerate(sizes):
            ids = np.arange(size // 2) + number * (1 << 32)
            low = draw.integers(0, domain, size // 2)
            points = {"id": ids, "x": self._points(draw, domain, size // 2)}
            for side, columns in ((0, points), (1, {"rid": ids, "low": low, "high": low + _WIDTH})):
                deliver(self.folder / str(side), number, pa.table(columns))
        return self

    def _points(self, draw: np.random.Generator, domain: int, rows: int) -> Any:
        if not self.zipf:
            return draw.integers(0, domain, rows)
        weights = 1 / np.arange(1, 100_001) ** self.zipf
        places = np.random.default_rng(2).integers(0, domain, weights.size)
        return places[draw.choice(weights.size, rows, p=weights / weights.sum())]

    def streams(self, spark: SparkSession) -> list[DataFrame]:
        """Return both sides as streams, with a file of each per batch."""
        return [
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder / str(side)))
            for side, schema in enumerate(_SCHEMAS)
        ]

    def tables(self, spark: SparkSession) -> list[DataFrame]:
        """Return both sides as tables of all rows."""
        return [spark.read.schema(schema).parquet(str(self.folder / str(side))) for side, schema in enumerate(_SCHEMAS)]


def deliver(folder: Path, number: int, table: pa.Table) -> None:
    """Write a file of a stream, with a modification time by `number`, as streams read files in the order of these."""
    path = folder / f"{number:05}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    os.utime(path, (1_000 + number, 1_000 + number))


Join = Callable[["DataFrame", "DataFrame"], "DataFrame"]


def our_ranges(points: DataFrame, intervals: DataFrame) -> DataFrame:
    from sparkext.streams import stream_join

    return stream_join(points, intervals, on=[("x", ">=", "low"), ("x", "<", "high")])


def sparks_ranges(points: DataFrame, intervals: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    buckets = F.explode(F.sequence(F.expr(f"low div {_WIDTH}"), F.expr(f"(high - 1) div {_WIDTH}")))
    condition = F.expr("bucket = of and x >= low and x < high")
    return points.withColumn("bucket", F.expr(f"x div {_WIDTH}")).join(intervals.withColumn("of", buckets), condition)


def our_keys(points: DataFrame, intervals: DataFrame) -> DataFrame:
    from sparkext.streams import stream_join

    return stream_join(points, intervals, on=[("x", "low")])


def sparks_keys(points: DataFrame, intervals: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return points.join(intervals, F.expr("x = low"))


@dataclass
class Played:
    """The batches of a query after the load: milliseconds and rows of each, and the answer of the query."""

    milliseconds: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    answer: tuple[int, ...] = (0, 0, 0)
    report: StreamReport = field(default_factory=partial(StreamReport, ()))

    @property
    def throughput(self) -> float:
        """Rows per second of the median batch."""
        return statistics.median(rows / time * 1000 for rows, time in zip(self.rows, self.milliseconds, strict=True))

    def percentile(self, share: float) -> float:
        """Return the percentile `share` (0 to 1) of the batches' milliseconds."""
        return sorted(self.milliseconds)[min(len(self.milliseconds) - 1, math.floor(share * len(self.milliseconds)))]


def run_stream(out: DataFrame, add: Callable[[DataFrame, int], object]) -> list[Any]:
    """Run a query over all existing files, with `add` called for every batch; return Spark's progress reports."""
    with TemporaryDirectory() as checkpoint:
        query = out.writeStream.option("checkpointLocation", checkpoint).foreachBatch(add).start()
        query.processAllAvailable()
        progress = list(query.recentProgress)
        query.stop()
    return progress


def milliseconds_of(progress: Iterable[Any]) -> list[float]:
    """Return the milliseconds of each batch that had rows."""
    return [batch.durationMs["triggerExecution"] for batch in progress if batch.numInputRows]


def play(out: DataFrame) -> Played:
    """Run a query over all existing files. The times of the first batches are left out."""
    from pyspark.sql import functions as F

    played = Played()

    def add(frame: DataFrame, batch: int) -> None:
        [found] = frame.agg(F.count("*"), F.sum("id"), F.sum("rid")).collect()
        played.answer = tuple(one + (other or 0) for one, other in zip(played.answer, found, strict=True))

    progress = run_stream(out, add)
    counted = progress[LOADS + _SKIPPED :]
    played.milliseconds = milliseconds_of(counted)
    played.rows = [batch.numInputRows for batch in counted if batch.numInputRows]
    played.report = read_stream_report(progress)
    return played


def checked(spark: SparkSession, name: str, feed: Feed, join: Join, expected: Sequence[int] | None) -> Played:
    """Run a join over the streams of a feed, and check its answer unless `expected` is None.

    Raises
    ------
    WrongAnswerError
        The answer is not `expected`.
    """
    with step(f"{name}, {feed.state:,} rows of state, batches of {feed.rows:,}"):
        played = play(join(*feed.streams(spark)))
    if expected is not None and played.answer != tuple(expected):
        raise WrongAnswerError(f"{name} gives {played.answer}, a join of all rows {tuple(expected)}")
    return played


def expected_of(spark: SparkSession, feed: Feed, on: list[Any]) -> tuple[int, ...]:
    """Return the answer of the same join over tables."""
    from pyspark.sql import functions as F

    from sparkext import pipelined_join

    points, intervals = feed.tables(spark)
    joined = points.transform(pipelined_join(intervals, on=on))
    [found] = joined.agg(F.count("*"), F.sum("id"), F.sum("rid")).collect()
    return tuple(value or 0 for value in found)


RANGES: list[Any] = [("x", ">=", "low"), ("x", "<", "high")]
_KEYS: list[Any] = [("x", "low")]


@contextmanager
def streaming_session(bench: Bench, **more: Any) -> Iterator[SparkSession]:
    """Start a session for streams, with RocksDB as state store; `more` are additional settings."""
    settings = {
        "spark.sql.shuffle.partitions": str(bench.threads),
        "spark.sql.streaming.stateStore.providerClass": _ROCKS_DB,
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        **{key: str(value) for key, value in more.items()},
    }
    with spark_session(bench.threads, **settings) as spark:
        yield spark


@contextmanager
def fed(bench: Bench, state: int, rows: int, batches: int, zipf: float = 0.0) -> Iterator[Feed]:
    with TemporaryDirectory() as folder:
        sizes = bench.sized(state), bench.sized(rows), 4 if bench.tiny else batches
        with step(f"writing {sizes[0]:,} rows of state and {sizes[2]} batches of {sizes[1]:,}"):
            feed = Feed(Path(folder), *sizes, zipf).written()
        yield feed


def _run_ranges(bench: Bench) -> None:
    _throughput(bench, our_ranges, sparks_ranges, RANGES, (1_000_000, 100_000, 6), (10_000_000, 400_000, 10))


def _run_keys(bench: Bench) -> None:
    _throughput(bench, our_keys, sparks_keys, _KEYS, (1_000_000, 100_000, 6), (10_000_000, 400_000, 10))


def _throughput(
    bench: Bench,
    ours: Join,
    sparks: Join,
    on: list[Any],
    both: tuple[int, int, int],
    alone: tuple[int, int, int],
) -> None:
    """Run both joins on sizes that Spark finishes in minutes, and ours alone with much more state."""
    rows = []
    with streaming_session(bench) as spark:
        for sizes, joins in ((both, {"sparkext": ours, "spark": sparks}), (alone, {"sparkext": ours})):
            with fed(bench, *sizes) as feed:
                expected = expected_of(spark, feed, on)
                for name, join in joins.items():
                    played = checked(spark, name, feed, join, expected)
                    rows.append(_told(bench, name, feed, played))
    print(format_table(("", "rows of state", "rows a batch", "rows a second", "batch, ms"), rows))


def _told(bench: Bench, name: str, feed: Feed, played: Played) -> tuple[str, ...]:
    median = statistics.median(played.milliseconds)
    bench.record(
        contestant=name,
        state=feed.state,
        rows=feed.rows,
        rows_per_second=played.throughput,
        batch_ms=played.milliseconds,
        median_ms=median,
        zipf=feed.zipf,
    )
    return name, f"{feed.state:,}", f"{feed.rows:,}", f"{played.throughput:,.0f}", f"{median:,.0f}"


def _run_latency(bench: Bench) -> None:
    rows = []
    with streaming_session(bench) as spark:
        for name, join, sizes in (
            ("sparkext", our_ranges, (1_000_000, 10_000, 110)),
            ("spark, keys, empty batches", sparks_keys, (2_000, 2, 110)),
        ):
            with fed(bench, *sizes) as feed:
                on = RANGES if join is our_ranges else _KEYS
                played = checked(spark, name, feed, join, expected_of(spark, feed, on))
                _told(bench, name, feed, played)
                rows.append((name, *(f"{played.percentile(share):,.0f}" for share in (0.5, 0.9, 0.99))))
    print(format_table(("", "p50, ms", "p90", "p99"), rows))


def _run_growth(bench: Bench) -> None:
    rows, medians = [], []
    with streaming_session(bench) as spark:
        for times in _GROWTH:
            with fed(bench, 1_250_000 * times, 10_000, 20) as feed:
                played = checked(spark, "sparkext", feed, our_ranges, expected_of(spark, feed, RANGES))
                rows.append(_told(bench, "sparkext", feed, played))
                medians.append(statistics.median(played.milliseconds))
    print(format_table(("", "rows of state", "rows a batch", "rows a second", "batch, ms"), rows))
    law = power_law(_GROWTH, medians)
    bench.record(contestant="sparkext", of="state", exponent=law.exponent, standard_error=law.error)
    print(f"The time of a batch grows with the state to the power of {law}.")


def _run_skew(bench: Bench) -> None:
    rows = []
    with streaming_session(bench) as spark:
        for zipf in _EXPONENTS:
            with fed(bench, 2_000_000, 200_000, 10, zipf) as feed:
                played = checked(spark, f"z = {zipf}", feed, our_ranges, expected_of(spark, feed, RANGES))
                rows.append((f"z = {zipf}", *_told(bench, "sparkext", feed, played)[1:], f"{played.answer[0]:,}"))
    print(format_table(("", "rows of state", "rows a batch", "rows a second", "batch, ms", "pairs"), rows))
