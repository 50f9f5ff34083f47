"""Apache Flink, beside this package: a join of two streams, by buckets, and orders that reduce the cash of the next.

`python -m bench.flink --install` makes the environment for it in .data/flink: a virtual environment with PyFlink,
600 MB. Nothing is fetched otherwise, and without it the case says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from bench.cql import Offers, bought_in, our_orders, tables_of
from bench.harness import Bench, Case, WrongAnswerError, step
from bench.spark_session import CROSSING, spark_session
from bench.starts import Started, seconds_of
from bench.streams import LOADS, RANGES, Feed, checked, expected_of, fed, our_ranges, streaming_session
from bench.text_table import text_table

VERSION = "2.3.0"
HOME = Path(__file__).parents[1] / ".data" / "flink"
_PYTHON = HOME / "bin" / "python"
_JOB = Path(__file__).with_name("flink_job.py")
_TRADING = Path(__file__).with_name("Trading.java")

NOTES = f"""\
Measured: as in streams.ranges. Flink {VERSION} has no join of streams without an equality either (a nested loop takes
only one task and all pairs), so it joins buckets as Spark does there, with its state on the heap, which is faster than
in RocksDB, on the same cores, and reads the same rows from CSV files, for which it needs no other jars. Its time is
that of a job over all files less that of one over the state alone; it keeps no checkpoints, which ours does."""

NOTES_TRADING = f"""\
Measured: from files to orders, one core. sparkext: DataFrames of Parquet, of which the rows are put in order first.
Flink {VERSION}: one process function in Java, with its state on the heap, over lines of CSV, which it takes as they
come, without event time. Without the start: less the time of a job over the stocks alone. Workers and JVMs are warm;
both give the same orders."""

_SIZES = (1_000_000, 100_000, 6), (10_000_000, 400_000, 10)


def cases() -> list[Case]:
    """One, with little and with much state."""
    title = "points in intervals, both streams: rows a second beside Flink's"
    trading = "orders that reduce the cash of the next, beside a process function in Java"
    return [
        Case("flink.ranges", title, _run, scaled=False, named=True),
        Case("flink.trading", trading, _run_trading, scaled=False, named=True, threads=1),
    ]


def install() -> None:
    """Make the environment."""
    venv.create(HOME, with_pip=True)
    subprocess.run([str(_PYTHON), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"], check=True)


def _run(bench: Bench) -> None:
    if not _PYTHON.exists():
        print("Flink is not there: python -m bench.flink --install")
        return
    rows = []
    with streaming_session(bench) as spark:
        for sizes in _SIZES:
            with fed(bench, *sizes) as feed:
                expected = expected_of(spark, feed, RANGES)
                ours = checked(spark, "sparkext", feed, our_ranges, expected).throughput
                flinks = _throughput(bench, feed, expected)
            for name, rate in (("sparkext", ours), ("Flink", flinks)):
                bench.record(contestant=name, state=feed.state, rows=feed.rows, rows_per_second=rate)
                rows.append((name, f"{feed.state:,}", f"{rate:,.0f}", f"{ours / rate:.1f}"))
    print(text_table(("", "rows of state", "rows a second", "sparkext's, in these"), rows))
    print(NOTES)


def _throughput(bench: Bench, feed: Feed, expected: tuple[int, ...]) -> float:
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
    return feed.rows * feed.batches / (seconds[1] - seconds[0])


def _run_trading(bench: Bench) -> None:
    if not _PYTHON.exists():
        print("Flink is not there: python -m bench.flink --install")
        return
    offers = Offers(bench.sized(2_000_000))
    runs = 1 if bench.tiny else 1 + bench.runs
    with TemporaryDirectory() as folder:
        flinks, orders = _flinks_orders(offers, Path(folder), runs)
    with spark_session(1, **CROSSING, **{"spark.sql.shuffle.partitions": "1"}) as spark:
        frames = tables_of(spark, bench, offers)
        stocks = {**frames, "market": frames["market"].where("false")}
        ours = Started()
        for _ in range(runs):
            with step("sparkext"):
                ours.start.append(seconds_of(lambda: bought_in(our_orders(stocks)), []))
                ours.whole.append(seconds_of(lambda: bought_in(our_orders(frames)), orders))
    rows = []
    for name, seconds in (("sparkext in Spark", ours), ("Flink, a process function in Java", flinks)):
        rates = seconds.rates(offers.count)
        bench.record(contestant=name, rows=offers.count, rows_per_second=rates[0], without_start=rates[1])
        rows.append((name, *(f"{rate:,.0f}" for rate in rates)))
    print(text_table(("", "offers a second", "without the start"), rows))
    print(NOTES_TRADING)


def _flinks_orders(offers: Offers, folder: Path, runs: int) -> tuple[Started, list[tuple[object, ...]]]:
    """Return the seconds that Flink needs, and its orders."""
    [jars] = HOME.glob("lib/python*/site-packages/pyflink/lib")
    ids, values = offers.columns["market"][0], offers.values
    lines = pa.table([offers.streams, offers.times, ids, values], names=["stream", "time", "id", "value"])
    before = lines.num_rows - offers.count
    for name, part in (("stocks", lines.slice(0, before)), ("all", lines)):
        options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
        pa.csv.write_csv(part, folder / name, options)
    subprocess.run(["javac", "-d", str(folder), "-cp", f"{jars}/*", str(_TRADING)], check=True)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.util", "java.lang")]
    files = [str(folder / name) for _ in range(runs) for name in ("stocks", "all")]
    command = ["java", *opened, "-cp", f"{jars}/*:{folder}", "Trading", *files]
    with step("Flink"):
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        raise RuntimeError(told.stdout + told.stderr)
    seconds = [float(line.split(";")[0]) for line in told.stdout.splitlines()]
    orders = []
    for order in told.stdout.splitlines()[-1].split(";")[1:]:
        at, name, num, price = order.split(",")
        orders.append((int(at), name, int(num), float(price)))
    return Started(seconds[1::2], seconds[::2]), orders


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true", required=True)
    parser.parse_args()
    install()
    sys.exit(0)
