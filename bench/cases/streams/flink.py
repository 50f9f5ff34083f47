"""Apache Flink, compared with this package: joins of streams by buckets, orders that reduce cash, rows in time order.

`python -m bench.cases.streams.flink --install` creates the environment for Flink in .data/flink: a virtual environment
with PyFlink, 600 MB. Only this command downloads anything. Without the environment, the cases only print how to create
it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from bench.cases.streams.joins import LOADS, RANGES, Feed, checked, expected_of, fed, our_ranges, streaming_session
from bench.cases.streams.ordered import fed_readings, ordered_alone
from bench.cases.streams.trading import (
    OFFERS,
    Orders,
    TradingRows,
    bought_shares,
    collected_orders,
    loop_orders_of_lines,
    our_orders,
    read_streams,
    require_busy,
)
from bench.engines import environments
from bench.engines.spark_session import CROSSING, spark_session
from bench.harness import Bench, Case, WrongAnswerError, step
from bench.starts import Started, seconds_of_job
from sparkext.wording import format_table

VERSION = "2.3.0"
HOME = Path(__file__).parents[3] / ".data" / "flink"
_PYTHON = environments.python_of(HOME)
_JOB = Path(__file__).with_name("flink_job.py")
_TRADING, _ORDERING = (Path(__file__).with_name(f"{name}.java") for name in ("Trading", "Ordering"))

NOTES = f"""\
Measured: as in streams.ranges. Like Spark, Flink {VERSION} has no suitable join of streams without an equality: its
nested loop runs in a single task and tests all pairs. So it joins buckets, as Spark does in streams.ranges. Its state
is on the heap, which is faster than in RocksDB. It runs on the same cores and reads the same rows, from CSV files, for
which it needs no other jars. Its time is that of a job over all files minus that of a job over the files of the initial
state. Flink writes no checkpoints; sparkext does."""

NOTES_TRADING = f"""\
Measured: the rows of cql.trading, from CSV files to orders, on one core. All contestants return the orders of the loop
in Python. sparkext reads one file for each stream and sorts their rows by time first. Flink {VERSION} and the loop in
Python read one file, in which all rows are already sorted. Flink runs one process function in Java, with object reuse
and its state on the heap, without event time and checkpoints.
Without the start: the time minus that of the same job over the rows before the first offer. Workers and JVMs are
warm."""

NOTES_ORDERED = f"""\
Measured: putting rows of 100 devices in time order, on one core. sparkext: as in ordered_streams, the median of the
batches. Flink {VERSION}: one keyed process function in Java with a timer for each millisecond and its state on the
heap, over lines of CSV. Its time is that of a job over all rows minus that of a job over the first tenth. Flink has no
batches. Its watermark lags further behind the latest row, so that no row of a batch of sparkext is late in Flink. Flink
writes no checkpoints; sparkext does."""

_SIZES = (1_000_000, 100_000, 6), (10_000_000, 400_000, 10)


def cases() -> list[Case]:
    """Return the cases: a join with little and with much state, the trading query, and rows in time order."""
    title = "points in intervals, both streams: rows a second beside Flink's"
    trading = "orders that reduce the cash of the next, beside a process function in Java"
    return [
        Case("flink.ranges", title, _run, scaled=False, named=True),
        Case("flink.trading", trading, _run_trading, scaled=False, named=True, threads=1),
        Case("flink.ordered", "rows of devices in order of time", _run_ordered, scaled=False, named=True, threads=1),
    ]


def _is_there() -> bool:
    """Return whether the environment exists; if not, print how to create it."""
    if not _PYTHON.exists():
        print("Flink is not there: python -m bench.cases.streams.flink --install")
    return _PYTHON.exists()


def _run(bench: Bench) -> None:
    if not _is_there():
        return
    rows = []
    with streaming_session(bench) as spark:
        for sizes in _SIZES:
            with fed(bench, *sizes) as feed:
                expected = expected_of(spark, feed, RANGES)
                played = checked(spark, "sparkext", feed, our_ranges, expected)
                ours, seconds = played.throughput, _flinks_seconds_of_join(bench, feed, expected)
                flinks = feed.rows * feed.batches / (seconds[1] - seconds[0])
            raw = {"sparkext": {"batch_ms": played.milliseconds}, "Flink": {"state_and_all_seconds": seconds}}
            for name, rate in (("sparkext", ours), ("Flink", flinks)):
                bench.record(contestant=name, state=feed.state, rows=feed.rows, rows_per_second=rate, **raw[name])
                rows.append((name, f"{feed.state:,}", f"{rate:,.0f}", f"{ours / rate:.1f}"))
    print(format_table(("", "rows of state", "rows a second", "sparkext's, in these"), rows))


def _flinks_seconds_of_join(bench: Bench, feed: Feed, expected: tuple[int, ...]) -> list[float]:
    """Return the seconds of a job over the state alone, and of a job over all files."""
    seconds = []
    for files in (LOADS, LOADS + feed.batches):
        with TemporaryDirectory() as folder, step(f"Flink, {files} files of each side"):
            for side in ("0", "1"):
                (Path(folder) / side).mkdir()
                for path in sorted((feed.folder / side).iterdir())[:files]:
                    target = Path(folder) / side / f"{path.stem}.csv"
                    pa.csv.write_csv(pq.read_table(path), target, pa.csv.WriteOptions(include_header=False))
            told = subprocess.run(
                [str(_PYTHON), str(_JOB), folder, str(bench.threads)], capture_output=True, text=True, check=False
            )
        if told.returncode:
            raise RuntimeError(told.stdout + told.stderr)
        found = json.loads(told.stdout.splitlines()[-1])
        seconds.append(found["seconds"])
    if tuple(found["answer"]) != expected:
        raise WrongAnswerError(f"Flink gives {found['answer']}, a join of all rows {expected}")
    return seconds


def _run_trading(bench: Bench) -> None:
    if not _is_there():
        return
    rows = TradingRows.generated(bench.sized(OFFERS))
    orders = rows.orders()
    shares = bought_shares(rows, orders)
    require_busy(shares)
    runs = 1 if bench.tiny else 1 + bench.runs
    with TemporaryDirectory() as name:
        folder = Path(name)
        files = [part.write_lines(folder / title) for title, part in (("start", rows.first(0)), ("all", rows))]
        seconds = {
            "sparkext in Spark": _our_seconds(folder, rows, orders, runs),
            "a loop in Python": _seconds_of_jobs([partial(loop_orders_of_lines, file) for file in files], orders, runs),
            "Flink, a process function in Java": _flinks_seconds(folder, files, orders, runs),
        }
    table = []
    for contestant, taken in seconds.items():
        table.append((contestant, *(f"{rate:,.0f}" for rate in taken.rates(len(rows)))))
        taken.record(bench, contestant, len(rows), bought=shares)
    print(format_table(("", "rows a second", "without the start"), table))
    print(f"bought: at least {min(shares):.0%} of the offers of each tenth")
    print(NOTES_TRADING)


def _our_seconds(folder: Path, rows: TradingRows, orders: Orders, runs: int) -> Started:
    with spark_session(1, **CROSSING, **{"spark.sql.shuffle.partitions": "1"}) as spark:
        jobs = []
        for name, part in (("start", rows.first(0)), ("all", rows)):
            frames = read_streams(spark, part.write_streams(folder / f"{name}-streams"))
            jobs.append(lambda frames=frames: collected_orders(our_orders(frames)))
        return _seconds_of_jobs(jobs, orders, runs)


def _seconds_of_jobs(jobs: Sequence[Callable[[], Orders]], orders: Orders, runs: int) -> Started:
    """Return the seconds of `jobs`: over the rows before the first offer, and over all rows."""
    seconds = Started()
    for _ in range(runs):
        for taken, job, expected in zip((seconds.start, seconds.whole), jobs, (Orders(), orders), strict=True):
            taken.append(seconds_of_job(job, expected))
    return seconds


def _flinks_seconds(folder: Path, files: Sequence[Path], orders: Orders, runs: int) -> Started:
    """Return the seconds of Flink's jobs over two files.

    Raises
    ------
    WrongAnswerError
        Flink's orders differ from `orders`.
    """
    seconds, answers = _run_java(_TRADING, folder, files, runs)
    for answer, expected in zip(answers, [Orders(), orders] * runs, strict=True):
        found = Orders()
        for order in filter(None, answer):
            at, name, number, price = order.split(",")
            found.append((int(at), name, int(number), float(price)))
        if found != expected:
            raise WrongAnswerError(f"Flink gives {found}, and not {expected}")
    return seconds


def _run_ordered(bench: Bench) -> None:
    if not _is_there():
        return
    rows = []
    runs = 1 if bench.tiny else 1 + bench.runs
    with streaming_session(bench) as spark:
        for size in (bench.sized(200_000), bench.sized(1_000_000)):
            with fed_readings(bench, lambda number: 0.0, size, batches=8) as folder:
                with step(f"sparkext, {size:,} rows a batch"):
                    played = ordered_alone(spark, folder)
                flinks, seconds = _flinks_order(folder, runs)
            raw = {"batch_ms": played.milliseconds}, {"few_seconds": seconds.start, "all_seconds": seconds.whole}
            names = "sparkext", "Flink, a keyed process function in Java"
            for name, rate, runs_of in zip(names, (size / played.median * 1000, flinks), raw, strict=True):
                bench.record(contestant=name, rows_of_batch=size, rows_per_second=rate, **runs_of)
                rows.append((name, f"{size:,}", f"{rate:,.0f}"))
    print(format_table(("", "rows a batch", "rows a second"), rows))
    print(NOTES_ORDERED)


def _flinks_order(readings: Path, runs: int) -> tuple[float, Started]:
    """Return the rows per second that Flink puts in order, and the seconds of its jobs.

    Raises
    ------
    WrongAnswerError
        Rows are missing from the output, or not in order.
    """
    table = pa.concat_tables(pq.read_table(path) for path in sorted(readings.iterdir()))
    table = table.set_column(3, "ts", table["ts"].cast("int64"))
    parts = {"few": table.slice(0, table.num_rows // 10), "all": table}
    with TemporaryDirectory() as folder:
        for name, part in parts.items():
            pa.csv.write_csv(part, Path(folder) / name, pa.csv.WriteOptions(include_header=False))
        files = [Path(folder) / name for name in parts]
        seconds, answers = _run_java(_ORDERING, Path(folder), files, runs, "12")
    expected = [[str(part.num_rows), str(pa.compute.sum(part["id"])), "0"] for part in parts.values()]
    if answers != expected * runs:
        raise WrongAnswerError(f"Flink gives {answers}, and not {expected}")
    return seconds.rates(table.num_rows - parts["few"].num_rows)[1], seconds


def _run_java(
    source: Path, folder: Path, files: Sequence[Path], runs: int, *options: str
) -> tuple[Started, list[list[str]]]:
    """Compile a class into `folder`; run its job over each of two files, the smaller first, `runs` times.

    Return the seconds and the answers of the jobs.
    """
    [jars] = HOME.glob("lib/python*/site-packages/pyflink/lib")
    subprocess.run(["javac", "-d", str(folder), "-cp", f"{jars}/*", str(source)], check=True)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.util", "java.lang")]
    paths = [str(path) for _ in range(runs) for path in files]
    command = ["java", *opened, "-cp", f"{jars}/*:{folder}", source.stem, *options, *paths]
    with step("Flink"):
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        raise RuntimeError(told.stdout + told.stderr)
    jobs = [line.split(";") for line in told.stdout.splitlines()]
    seconds = [float(job[0]) for job in jobs]
    return Started(seconds[1::2], seconds[::2]), [answer for _, *answer in jobs]


if __name__ == "__main__":
    install = partial(environments.create, HOME, f"apache-flink=={VERSION}")
    sys.exit(environments.main(__doc__, install, f"{HOME} is ready: python -m bench flink"))
