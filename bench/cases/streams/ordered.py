"""Rows of a stream in time order, compared with Spark; the paper's planner, simulated; the merge kernel."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.cases.streams.joins import deliver, milliseconds_of, run_stream, streaming_session
from bench.cases.streams.psort import Assignment, Members, assign_basic, assign_optimised
from bench.harness import Bench, Case, Contestant, WrongAnswerError, measure, record, seconds_of, step, verify
from sparkext.wording import format_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES_MERGE = """\
Measured on one core: from sorted runs of int64, stored one after another, to all values in order and the row number of
each value. numpy: a stable sort, which detects runs. Polars: merge_sorted of two runs at a time, with row numbers as a
column. DuckDB: ORDER BY of a table of values and row numbers, on one thread."""

NOTES_PARTITIONS = """\
Simulated: the planner of the P-SORT paper (psort.py). `ordered` uses another planner, order_table.py. It
assigns hash buckets, and it splits devices in an additional first stage, only if this makes a batch shorter.
The table shows rows per second relative to one partition of the stream. The sensors are as skewed as in the paper: the
largest device has 17 % of all rows, and the paper states no other share. Each sensor is in one partition. Unit costs,
measured here, in microseconds per row:
{costs}.
Total order: all results are merged in one partition, while the other partitions process rows. Basic: no device is
split. Optimised: devices that exceed the share of a partition are split, and their results are merged. None: no order.
The function computes, in a Python loop, the difference between each reading and the one before it. The paper reports
6.1, 6.5, 13 and 14 for 16 partitions."""

NOTES = """\
Measured: batches of files, from reading them to a count, a sum and a check of the order of the output. Times are
medians without the first four batches.
Spark, a sort per batch: repartition(device).sortWithinPartitions(ts) of the rows of each batch. It neither waits for
late rows nor orders rows across batches. transformWithState: a list state and a timer for each device, in Python, with
RocksDB. Whole: `split=False`, the basic form, in which no device is split.
Left out: starting the query."""

_ROWS, _BATCHES, _SKIPPED = 200_000, 10, 4
_SENSORS = 580
_SCHEMA = "id long, device int, sensor int, ts timestamp, level double"


def cases() -> list[Case]:
    """Return the cases: the merge kernel, the simulation, and streams."""
    return [
        Case("ordered_streams.merge", "sorted runs of 5 M words to one", _run_merge, scaled=False, threads=1),
        Case(
            "ordered_streams.slots",
            "the planner of the P-SORT paper, simulated",
            _run_partitions,
            scaled=False,
            threads=1,
        ),
        Case("ordered_streams.alone", "ordering alone, one core", _run_alone, scaled=False, threads=1, named=True),
        Case("ordered_streams.skew", "one device with half of all rows", _run_skew, scaled=False, named=True),
        Case("ordered_streams.latency", "from watermark to output, in batches", _run_latency, scaled=False, named=True),
        Case("ordered_streams.redraw", "a device becomes hot", _run_redraw, scaled=False, named=True),
    ]


# --- the kernel ---


def _run_merge(bench: Bench) -> None:
    rows = []
    for runs in (2, 8, 64):
        total = bench.sized(5_000_000)
        starts = np.linspace(0, total, runs + 1).astype(np.int64)
        words = np.random.default_rng(runs).integers(0, 1 << 47, total)
        for start, stop in pairwise(starts):
            words[start:stop].sort()
        contestants = _mergers(words, starts)
        verify(contestants)
        timings = measure(bench, contestants)
        record(bench, timings, total, part=f"{runs} runs")
        rows += [(f"{runs}", timing.contestant.name, f"{total / timing.median / 1e6:.0f}") for timing in timings]
    print(format_table(("runs", "", "M rows a second"), rows))
    print(NOTES_MERGE)


def _mergers(words: Any, starts: Any) -> list[Contestant]:
    import duckdb
    import polars as pl

    from sparkext.kernels.runtime.jit import freeze
    from sparkext.kernels.sort.merge_runs import merge_runs

    words, starts = freeze(words), freeze(starts)
    frames = [
        pl.DataFrame({"word": words[low:high], "row": np.arange(low, high, dtype=np.int32)})
        for low, high in pairwise(starts)
    ]

    def polars() -> Any:
        left = frames
        while len(left) > 1:
            left = [one.merge_sorted(other, "word") for one, other in zip(left[::2], left[1::2], strict=True)]
        return left[0]["word"].to_numpy(), left[0]["row"].to_numpy()

    connection = duckdb.connect(config={"threads": 1})
    table = pa.table({"word": words, "row": np.arange(words.size, dtype=np.int32)})
    connection.register("runs", table)

    def ducks() -> Any:
        found = connection.sql("SELECT word, row FROM runs ORDER BY word").fetchnumpy()
        return found["word"], found["row"]

    def numpys() -> Any:
        order = np.argsort(words, kind="stable")
        return words[order], order

    found: dict[str, Callable[[], Any]] = {
        "sparkext": lambda: merge_runs(words, starts),
        "numpy": numpys,
        "Polars": polars,
        "DuckDB": ducks,
    }
    return [Contestant(name, run, partial(_summed, run), ours=name == "sparkext") for name, run in found.items()]


def _summed(run: Callable[[], Any]) -> tuple[int, bool, bool]:
    """Return the sum of the words, whether they are sorted, and whether each row occurs once."""
    words, rows = run()
    in_order = bool((np.asarray(words)[1:] >= np.asarray(words)[:-1]).all())
    each_once = bool((np.sort(np.asarray(rows)) == np.arange(len(rows))).all())
    return int(np.asarray(words).sum()), in_order, each_once


# --- the simulation ---


@dataclass(frozen=True)
class Costs:
    """Seconds per row: to put it in order in a partition, to send it on, and to merge it."""

    process: float
    send: float
    merge: float


def _run_partitions(bench: Bench) -> None:
    alone = _costs(bench)
    _simulate(bench, "order alone", alone)
    _simulate(bench, "a function of each sensor", replace(alone, process=alone.process + _of_function(bench)))


def _simulate(bench: Bench, name: str, costs: Costs) -> None:
    members = like_the_papers()
    rows = []
    for partitions in (1, 2, 4, 8, 12, 16, 64, 256, 1000):
        plans = {
            "total": _whole(members, partitions),
            "basic": assign_basic(members, partitions),
            "optimised": assign_optimised(members, partitions),
        }
        ratios = {name: speedup(members, plan, partitions, costs) for name, plan in plans.items()}
        ratios["none"] = 1 / max(shares(members, _spread(members, partitions), partitions))
        best = plans["optimised"]
        merged = sum(sum(members[key].values()) for key in best.merged) / _SENSORS
        bench.record(part=f"{name}, {partitions} slots", contestant="sparkext", **ratios, merged=merged)
        largest = max(shares(members, best, partitions))
        rows.append(
            (str(partitions), *(f"{ratio:.1f}" for ratio in ratios.values()), f"{largest:.1%}", f"{merged:.0%}")
        )
    print(f"{name}:")
    print(format_table(("partitions", "total", "basic", "optimised", "none", "largest share", "merged"), rows))
    told = f"{costs.process * 1e6:.3f} to process, {costs.send * 1e6:.3f} to send on, {costs.merge * 1e6:.3f} to merge"
    print(NOTES_PARTITIONS.format(costs=told))


def like_the_papers() -> Members:
    """Return devices with sensors of equal weight. The largest device has 17 % of the sensors, others up to 4 %."""
    draw = np.random.default_rng(1)
    sizes = [_SENSORS * 17 // 100]
    while sum(sizes) < _SENSORS:
        sizes.append(min(int(draw.integers(1, _SENSORS // 25)), _SENSORS - sum(sizes)))
    return {device: dict.fromkeys(range(size), 1) for device, size in enumerate(sizes)}


def _whole(members: Members, partitions: int) -> Assignment:
    """Assign sensors to any partitions, and merge all of them."""
    return Assignment(_spread(members, partitions).partitions, frozenset(members))


def _spread(members: Members, partitions: int) -> Assignment:
    """Assign each sensor to the least loaded partition."""
    one = {None: {(key, member): weight for key, own in members.items() for member, weight in own.items()}}
    return Assignment(
        {place: partition for (_, place), partition in assign_optimised(one, partitions).partitions.items()},
        frozenset(),
    )


def shares(members: Members, plan: Assignment, partitions: int) -> list[float]:
    """Return the share of all rows that each partition processes."""
    loads = [0.0] * partitions
    for (key, member), partition in plan.partitions.items():
        loads[partition] += members[key][member]
    return [load / sum(loads) for load in loads]


def speedup(members: Members, plan: Assignment, partitions: int, costs: Costs) -> float:
    """Return the speedup over one partition, if merges run concurrently with other work."""
    loads = [share * costs.process for share in shares(members, plan, partitions)]
    merged = {key: sum(members[key].values()) / _SENSORS for key in plan.merged} if partitions > 1 else {}
    for (key, member), partition in plan.partitions.items():
        if key in merged:
            loads[partition] += members[key][member] / _SENSORS * costs.send
    if merged.keys() == members.keys():  # a total order is merged in one partition
        loads.append(costs.merge)
    else:
        for share in merged.values():
            loads[loads.index(min(loads))] += share * costs.merge
    return costs.process / max(loads)


def _costs(bench: Bench) -> Costs:
    """Measure the costs on rows of this benchmark, on one core."""
    from sparkext.kernels.runtime.jit import freeze
    from sparkext.rows.time_order import TimeOrder
    from sparkext.shuffle.packed_rows import RowUnpacker, blocks_of, keep_order
    from sparkext.streaming.ordered.partition import RowsInOrder

    total = bench.sized(1_000_000)
    table = rows_at(0, total, 0.17)
    order = TimeOrder(table.num_columns, 3)

    def process() -> list[pa.RecordBatch]:
        return [*RowsInOrder(table, order.order(table)).pieces(table.num_columns)]

    in_order = process()

    def send() -> list[pa.Buffer]:
        return [block for batch in in_order for _, block in blocks_of(batch, keep_order(batch.num_rows))]

    blocks, unpacker = send(), RowUnpacker(in_order[0].schema)

    halves = [pa.Table.from_batches(in_order).take(np.arange(start, total, 4)) for start in range(4)]
    starts = freeze(np.cumsum([0, *(half.num_rows for half in halves)]))
    runs = pa.concat_tables(halves).combine_chunks()

    def merge() -> None:
        for block in blocks:
            unpacker.unpack(block)
        for _ in RowsInOrder(runs, order.order(runs, starts)).pieces(runs.num_columns):
            pass

    def seconds(run: Callable[[], object]) -> float:
        return _seconds(run) / total

    # Before a row is put in order, it is read from its block.
    return Costs(
        seconds(process) + seconds(lambda: [unpacker.unpack(block) for block in blocks]), seconds(send), seconds(merge)
    )


def _of_function(bench: Bench) -> float:
    """Measure the function of the documentation, the rise of a sensor's level from row to row, in seconds per row."""
    levels = pa.array(np.random.default_rng(0).random(bench.sized(1_000_000) // _SENSORS))

    def rises() -> None:
        for _ in range(_SENSORS):
            values = levels.to_pylist()
            pa.array([level - before for before, level in zip([0.0, *values], values, strict=False)])

    return _seconds(rises) / (_SENSORS * max(1, len(levels)))


def _seconds(run: Callable[[], object]) -> float:
    """Return the median seconds of four runs, after a warm-up."""
    return statistics.median([seconds_of(run) for _ in range(5)][1:])


# --- streams ---


def rows_at(number: int, count: int, hot: float) -> pa.Table:
    """Return the rows of batch `number`, over ten seconds. Device 0 has a share `hot` of them, and its own sensors."""
    draw = np.random.default_rng(number)
    sensor = draw.integers(0, _SENSORS, count)
    device = 1 + sensor % 100
    is_hot = draw.random(count) < hot
    return pa.table(
        {
            "id": pa.array(np.arange(count) + number * (1 << 32)),
            "device": pa.array(np.where(is_hot, 0, device).astype(np.int32)),
            "sensor": pa.array(np.where(is_hot, sensor + _SENSORS, sensor).astype(np.int32)),
            "ts": pa.array(number * 10_000_000 + draw.integers(0, 10_000_000, count), pa.timestamp("us", "UTC")),
            "level": pa.array(draw.random(count)),
        }
    )


@contextmanager
def fed_readings(
    bench: Bench, hot: Callable[[int], float], size: int | None = None, batches: int = _BATCHES
) -> Iterator[Path]:
    """Yield a folder with the files of `batches` batches of `size` rows; `hot` as in `rows_at`, by batch number."""
    size = bench.sized(_ROWS) if size is None else size
    with TemporaryDirectory() as folder:
        count = 4 if bench.tiny else batches
        with step(f"writing {count} batches of {size:,} rows"):
            for number in range(count):
                deliver(Path(folder), number, rows_at(number, size, hot(number)))
        yield Path(folder)


def _stream(spark: SparkSession, folder: Path) -> DataFrame:
    stream = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return stream.withWatermark("ts", "2 seconds")


@dataclass
class Played:
    """Milliseconds of each batch, and of the output: number of rows, sum of their ids, and rows out of order."""

    milliseconds: list[float] = field(default_factory=list)
    rows: int = 0
    total: int = 0
    out_of_order: int = 0
    report: Any = None

    @property
    def median(self) -> float:
        """The median milliseconds of a batch, without the first `_SKIPPED` batches."""
        return statistics.median(self.milliseconds[_SKIPPED:] or self.milliseconds)


def _told_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield, for a partition, the number of rows, the sum of their ids, and the number of rows out of order."""
    rows = total = wrong = 0
    last = None
    for batch in batches:
        times = np.asarray(batch.column(1).cast(pa.int64()))
        rows += batch.num_rows
        total += int(np.asarray(batch.column(0)).sum())
        if times.size:
            wrong += int((np.diff(times) < 0).sum()) + (last is not None and times[0] < last)
            last = times[-1]
    yield pa.record_batch([[rows], [total], [wrong]], names=["rows", "total", "wrong"])


def _play(out: DataFrame, each: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> Played:
    """Run a query over all existing files; `each` transforms every batch."""
    from sparkext.reports.stream_report import read_stream_report

    played = Played()

    def add(frame: DataFrame, batch: int) -> None:
        told = each(frame).select("id", "ts").mapInArrow(_told_of, "rows long, total long, wrong long").collect()
        played.rows += sum(row.rows for row in told)
        played.total += sum(row.total for row in told)
        played.out_of_order += sum(row.wrong for row in told)

    progress = run_stream(out, add)
    played.milliseconds = milliseconds_of(progress)
    played.report = read_stream_report(progress)
    return played


def ordered_alone(spark: SparkSession, folder: Path, **options: Any) -> Played:
    """Put all rows of a folder in time order, with one file per batch."""
    from sparkext.streams import ordered

    out = ordered(_stream(spark, folder), time="ts", order_key="device", operator_key="sensor", name="o", **options)
    return _checked(_play(out), folder, waits=True)


def _sorted(spark: SparkSession, folder: Path, partitions: int) -> Played:
    def each(frame: DataFrame) -> DataFrame:
        return frame.repartition(partitions, "device").sortWithinPartitions("ts")

    return _checked(_play(_stream(spark, folder), each), folder, waits=False)


def _checked(played: Played, folder: Path, waits: bool) -> Played:
    """Check that the output has all rows, or, with `waits`, all rows up to the watermark, in order.

    Raises
    ------
    WrongAnswerError
        Rows are missing or out of order.
    """
    import pyarrow.dataset as ds

    table = ds.dataset(folder).to_table(columns=["id", "ts"])
    if waits:
        times = np.asarray(table["ts"].cast(pa.int64()))
        watermark = (times.max() // 1000 - 2000) * 1000
        table = table.filter(pa.array(times <= watermark))
    expected = table.num_rows, int(np.asarray(table["id"]).sum())
    if (played.rows, played.total) != expected or played.out_of_order:
        raise WrongAnswerError(
            f"{played.rows} rows, sum {played.total}, {played.out_of_order} out of order, and not {expected}"
        )
    return played


def _run_alone(bench: Bench) -> None:
    rows = []
    with streaming_session(bench) as spark, fed_readings(bench, lambda number: 0.0) as folder:
        contestants: dict[str, Callable[[], Played]] = {
            "sparkext": lambda: ordered_alone(spark, folder),
            "Spark, a sort per batch": lambda: _sorted(spark, folder, 1),
            "transformWithState": lambda: _with_timers(spark, folder),
        }
        for name, run in contestants.items():
            with step(name):
                played = run()
            rate = bench.sized(_ROWS) / played.median * 1000
            rows.append((name, f"{rate:,.0f}", f"{played.median:,.0f}"))
            bench.record(part="one core", contestant=name, rows_per_second=rate, batch_ms=played.milliseconds)
    print(format_table(("", "rows a second", "batch, ms"), rows))


def _run_skew(bench: Bench) -> None:
    rows = []
    with streaming_session(bench) as spark:
        for share in (0.0, 0.5):
            with fed_readings(bench, lambda number, share=share: share) as folder:
                for name, options in (("optimised", {}), ("whole", {"split": False})):
                    with step(f"{name}, {share:.0%} of one device"):
                        played = ordered_alone(spark, folder, **options)
                    merged = sum(batch.merged_rows for batch in played.report.of("o"))
                    rate = bench.sized(_ROWS) / played.median * 1000
                    rows.append((name, f"{share:.0%}", f"{rate:,.0f}", f"{played.median:,.0f}", f"{merged:,}"))
                    bench.record(
                        part=f"{share:.0%}", contestant=name, rows_per_second=rate, batch_ms=played.milliseconds
                    )
    print(format_table(("", "of one device", "rows a second", "batch, ms", "merged rows"), rows))


NOTES_LATENCY = """\
Measured: the delay of each output row in batches, since the batch in which the row arrived, and since the first batch
at the end of which a watermark of 2 seconds had passed the row. A batch contains ten seconds of rows."""


def _run_latency(bench: Bench) -> None:
    size = bench.sized(_ROWS)
    with streaming_session(bench) as spark, fed_readings(bench, lambda number: 0.0) as folder:
        late, taken, waiting = _lags(spark, folder)
    told = {f"{name}_{percent}": _at(late[name], percent) for name in late for percent in (50, 99, 100)}
    held = statistics.median(waiting[1:])
    rows = [(name, *(str(_at(counts, percent)) for percent in (50, 99, 100))) for name, counts in late.items()]
    print(format_table(("batches from", "median", "p99", "most"), rows))
    took = statistics.median(taken[_SKIPPED:] or taken)
    bench.record(contestant="sparkext", **told, batch_ms=taken, waiting_rows=held)
    print(f"{held:,.0f} rows wait, of {size:,} in a batch, which takes {took:,.0f} ms")
    print(NOTES_LATENCY)


def _at(counts: dict[int, int], percent: int) -> int:
    """Return a percentile of numbers, given as the count of each number."""
    numbers = sorted(counts)
    reached = np.cumsum([counts[number] for number in numbers])
    return numbers[int(np.searchsorted(reached, reached[-1] * percent / 100))]


def _lags(spark: SparkSession, folder: Path) -> tuple[dict[str, dict[int, int]], list[float], list[int]]:
    """Return rows by batches of delay, since arrival and since the watermark; batch times in ms; and waiting rows."""
    import pyarrow.parquet as pq

    from sparkext.streams import ordered

    files = [pq.read_table(path, columns=["ts"]) for path in sorted(folder.iterdir())]
    latest = np.maximum.accumulate([np.asarray(table["ts"].cast(pa.int64())).max() for table in files])
    watermarks = (latest // 1000 - 2000) * 1000

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            arrived = np.asarray(batch.column(0)) >> 32
            due = np.searchsorted(watermarks, np.asarray(batch.column(1).cast(pa.int64())))
            pairs, rows = np.unique(np.stack([arrived, np.maximum(due, arrived)]), axis=1, return_counts=True)
            yield pa.record_batch([*pairs.astype(np.int64), rows], names=["arrived", "due", "rows"])

    late: dict[str, dict[int, int]] = {"arrival": {}, "watermark": {}}
    waiting = np.cumsum([table.num_rows for table in files])

    def add(frame: DataFrame, number: int) -> None:
        found = frame.select("id", "ts").mapInArrow(counted, "arrived long, due long, rows long").collect()
        waiting[number:] -= sum(row.rows for row in found)
        for row in found:
            for name, since in (("arrival", row.arrived), ("watermark", row.due)):
                late[name][number - since] = late[name].get(number - since, 0) + row.rows

    out = ordered(_stream(spark, folder), time="ts", order_key="device", operator_key="sensor", name="o")
    return late, milliseconds_of(run_stream(out, add)), waiting.tolist()


def _run_redraw(bench: Bench) -> None:
    """From batch 8 to 15, one device has 60 % of all rows; before and after, there is no hot device."""
    batches = 4 if bench.tiny else 24
    shares = [0.6 if 8 <= number < 16 else 0.0 for number in range(batches)]
    with streaming_session(bench) as spark, fed_readings(bench, shares.__getitem__, batches=batches) as folder:
        played = ordered_alone(spark, folder)
    told = played.report.of("o")[: len(played.milliseconds)]
    bench.record(
        contestant="sparkext",
        milliseconds=played.milliseconds,
        share=shares,
        **{name: [getattr(one, name) for one in told] for name in ("rows_out", "merged_rows", "moved_rows", "tables")},
        bytes_of_row=told[-1].state_bytes / max(1, told[-1].state_rows),
    )
    rows = [
        (str(number), f"{taken:,.0f}", f"{one.merged_rows:,}", f"{one.moved_rows:,}", str(one.tables))
        for number, (taken, one) in enumerate(zip(played.milliseconds, told, strict=False))
    ]
    print(format_table(("batch", "ms", "merged rows", "moved rows", "tables"), rows))


def _with_timers(spark: SparkSession, folder: Path) -> Played:
    """Order the rows with `transformWithState`: a list state and a timer for each device."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Ordering(StatefulProcessor):
        """Stores rows until the watermark has passed them."""

        def init(self, handle: Any) -> None:
            self._handle = handle
            self._rows = handle.getListState("rows", "id long, sensor int, ts timestamp, level double")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            for frame in rows:
                self._rows.appendList([tuple(row) for row in frame[["id", "sensor", "ts", "level"]].itertuples(False)])
                self._register(frame)
            yield pd.DataFrame()

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            watermark = pd.Timestamp(timerValues.getCurrentWatermarkInMs(), unit="ms")
            frame = pd.DataFrame([*self._rows.get()], columns=["id", "sensor", "ts", "level"])
            is_due = frame["ts"] <= watermark
            waiting = frame[~is_due]
            self._rows.clear()
            if len(waiting):
                self._rows.put([tuple(row) for row in waiting.itertuples(index=False)])
                self._register(waiting)
            yield frame[is_due].sort_values("ts").assign(device=key[0])[["id", "device", "sensor", "ts", "level"]]

        def _register(self, frame: Any) -> None:
            """Register a timer for the time when the first of these rows is due."""
            self._handle.registerTimer(int(frame["ts"].min().value // 1_000_000) + 1)

        def close(self) -> None:
            pass

    out = (
        _stream(spark, folder).groupBy("device").transformWithStateInPandas(Ordering(), _SCHEMA, "Append", "EventTime")
    )
    played = _play(out)
    played.out_of_order = 0  # each device is in order, and devices follow one after the other
    return _checked(played, folder, waits=True)
