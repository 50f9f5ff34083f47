"""Apache Flink, beside this package: the same join of two streams, by buckets.

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

from bench.harness import Bench, Case, WrongAnswerError, step
from bench.streams import LOADS, RANGES, Feed, checked, expected_of, fed, our_ranges, streaming_session
from bench.text_table import text_table

VERSION = "2.3.0"
HOME = Path(__file__).parents[1] / ".data" / "flink"
_PYTHON = HOME / "bin" / "python"
_JOB = Path(__file__).with_name("flink_job.py")

NOTES = f"""\
Measured: as in streams.ranges. Flink {VERSION} has no join of streams without an equality either (a nested loop takes
only one task and all pairs), so it joins buckets as Spark does there, with its state on the heap, which is faster than
in RocksDB, on the same cores, and reads the same rows from CSV files, for which it needs no other jars. Its time is
that of a job over all files less that of one over the state alone; it keeps no checkpoints, which ours does."""

_SIZES = (1_000_000, 100_000, 6), (10_000_000, 400_000, 10)


def cases() -> list[Case]:
    """One, with little and with much state."""
    title = "points in intervals, both streams: rows a second beside Flink's"
    return [Case("flink.ranges", title, _run, scaled=False, named=True)]


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true", required=True)
    parser.parse_args()
    install()
    sys.exit(0)
