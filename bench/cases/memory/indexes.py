"""Memory of joins: one index per node, bytes per build row, and a bound at any fan-out."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.cases.queries.end_to_end import to_noop
from bench.control_groups import mib
from bench.data.keys import padded, spread
from bench.harness import Bench, Case, WrongAnswerError, step
from sparkext.wording import format_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = """\
Measured: the resident and the proportional set sizes of the live Python workers, from /proc/<pid>/smaps; the sizes of
index arrays; and the peak resident set of a new worker as reported by the system, including mapped file pages.
Left out: the JVM, which holds one Arrow batch per task on the way into Python and one on the way out."""

_DAEMONS = {"pyspark.daemon", "sparkext.daemon"}
WORKERS = 4
COPY_ROWS = 1_000_000
FAN_OUTS = (1, 10, 1_000, 100_000)
BUILD_ROWS = 200_000
PAYLOAD_BYTES = 200
OUTPUT_ROWS = 4_000_000
INDEX_ROWS = 1_000_000
ONE_ROWS_MATCHES = 50_000_000


def cases() -> list[Case]:
    """Return one case per claim."""
    return [
        Case("memory.one-copy", f"{WORKERS} workers: pages of a build file and its index", _one_copy, scaled=False),
        Case("memory.index-bytes", f"bytes per build row, {INDEX_ROWS:,} rows", _index_bytes, scaled=False, threads=1),
        Case("memory.fan-out", f"a worker's peak, {PAYLOAD_BYTES} bytes of payload a match", _fan_out, scaled=False),
        Case("memory.one-row", f"a worker's peak, one row with {ONE_ROWS_MATCHES:,} matches", _one_row, scaled=False),
    ]


@dataclass
class _Pages:
    """Bytes of a mapping: resident, and proportional (shared pages are divided among the processes)."""

    resident: int = 0
    proportional: int = 0


def _one_copy(bench: Bench) -> None:
    from bench.engines.spark_session import spark_session
    from sparkext import pipelined_join, report

    rows = bench.sized(COPY_ROWS)
    build = _build_table(rows, 100)
    with spark_session(WORKERS) as spark:
        # With random keys, each worker touches every page, and would hold a full copy if pages were not shared.
        probe = spark.range(0, 4 * rows, 1, 2 * WORKERS).selectExpr(f"pmod(xxhash64(id), {rows}) AS key")
        with step("joining"):
            out = probe.transform(pipelined_join(build, on="key"))
            to_noop(out)
            found = report(out).joins[-1].rows_out
        if found != 4 * rows:
            raise WrongAnswerError(f"{found:,} rows joined, {4 * rows:,} expected")
        mapped = {pid: files for pid in _python_workers() if (files := _shared_files(pid))}
        if len(mapped) < 2:
            raise WrongAnswerError(f"{len(mapped)} workers have mapped the build side, {WORKERS} expected")
    _print_one_copy(bench, mapped)


def _print_one_copy(bench: Bench, mapped: dict[int, dict[str, _Pages]]) -> None:
    table = []
    for pid, files in sorted(mapped.items()):
        for kind, pages in sorted(files.items()):
            table.append([str(pid), kind, mib(pages.resident), mib(pages.proportional)])
            bench.record(pid=pid, file=kind, resident=pages.resident, proportional=pages.proportional)
    for kind in sorted({kind for files in mapped.values() for kind in files}):
        each = [files[kind] for files in mapped.values() if kind in files]
        sums = (sum(pages.resident for pages in each), sum(pages.proportional for pages in each))
        table.append(["all", kind, *map(mib, sums)])
    print(f"\n{format_table(['worker', 'mapped', 'resident MiB', 'proportional MiB'], table, left=range(2))}\n")
    print(
        f"{len(mapped)} workers map the same pages: the sum of their proportional sizes is what the node holds, once."
        "\nA copy in each worker would take the sum of their resident sizes."
    )


def _python_workers() -> Iterator[int]:
    """Yield the child processes that run a Python daemon of Spark or of this package."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # the process has just ended
            if not _DAEMONS.isdisjoint(process.cmdline()):
                yield process.pid


def _shared_files(pid: int) -> dict[str, _Pages]:
    """Sum the mapped pages of the build file and of its index, whose path begins with the build file's path."""
    mappings = list(_mappings(Path(f"/proc/{pid}/smaps").read_text()))
    indexes = {path for path, _, _ in mappings if path.endswith(".index")}
    found: dict[str, _Pages] = defaultdict(_Pages)
    for path, resident, proportional in mappings:
        if path in indexes or any(index.startswith(f"{path}.") for index in indexes):
            pages = found["index" if path in indexes else "build file"]
            pages.resident += resident
            pages.proportional += proportional
    return dict(found)


def _mappings(smaps: str) -> Iterator[tuple[str, int, int]]:
    """Yield path, resident and proportional bytes of each mapping of a file."""
    for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", smaps):
        head = re.match(r"\S+ \S+ \S+ \S+ \d+ +(/.*)", block)
        if head:
            sizes = {name: int(re.search(rf"^{name}: +(\d+)", block, re.M)[1]) << 10 for name in ("Rss", "Pss")}  # type: ignore[index]
            yield head[1], sizes["Rss"], sizes["Pss"]


def _index_bytes(bench: Bench) -> None:
    from bench.engines.indexes import BUILDERS, encoded
    from sparkext.kernels.indexes.protocols import index_bytes

    numbers = np.random.default_rng(1).permutation(INDEX_ROWS).astype(np.int64)
    table = []
    for name, keys in _key_sets(numbers).items():
        kinds = [kind for kind in BUILDERS if kind != "dense" or name.startswith("dense")]
        sizes = {kind: index_bytes(BUILDERS[kind](encoded(keys))) / INDEX_ROWS for kind in kinds}
        bench.record(keys=name, key_bytes=keys.nbytes / INDEX_ROWS, bytes_per_row=sizes)
        cells = [f"{sizes[kind]:.1f}" if kind in sizes else "" for kind in ("hash", "dense", "ordered")]
        table.append([name, f"{keys.nbytes / INDEX_ROWS:.1f}", *cells])
    print(f"\n{format_table(['keys', 'the keys themselves', 'hash', 'dense', 'ordered'], table)}")
    print(
        "\nbytes per build row; a hash table of n keys has a power of two of slots between 1.5 n and 3 n, 16 bytes each"
    )


def _key_sets(numbers: np.ndarray) -> dict[str, pa.Array]:
    return {
        "dense, distinct": pa.array(numbers),
        "dense, 10 rows each": pa.array(numbers // 10),
        "sparse, distinct": pa.array(spread(numbers)),
        "sparse, 10 rows each": pa.array(spread(numbers // 10)),
        "text of 12 digits, distinct": padded(numbers, 12),
        "text of 12 digits, 10 rows each": padded(numbers // 10, 12),
    }


def _fan_out(bench: Bench) -> None:
    from bench.engines.spark_session import spark_session

    with spark_session(1, **{"spark.python.worker.reuse": "false"}) as spark:
        with step("warming up"):
            _peak(spark, 1)
        with step("baseline: no key matches"):
            baseline, files = _peak(spark, 0)
        table = [["no match", "0", "", mib(baseline), "", mib(files)]]
        for fan_out in FAN_OUTS:
            with step(f"fan-out {fan_out:,}"):
                peak, files = _peak(spark, fan_out)
            matches = min(OUTPUT_ROWS // fan_out, 131_072) * fan_out
            table.append(
                [
                    f"{fan_out:,}",
                    f"{OUTPUT_ROWS:,}",
                    mib(matches * (PAYLOAD_BYTES + 28)),
                    mib(peak),
                    mib(peak - baseline),
                    mib(files),
                ]
            )
            bench.record(fan_out=fan_out, rows=OUTPUT_ROWS, peak=peak, baseline=baseline, mapped_files=files)
    header = [
        "matches a key",
        "result rows",
        "a morsel's whole result MiB",
        "peak MiB",
        "above no match",
        "mapped files",
    ]
    print(f"\n{format_table(header, table)}\n")
    print(
        f"{BUILD_ROWS:,} build rows throughout. The peak counts the pages of the mapped files that were touched, which"
        "\nthe system can take back; a fan-out that touches fewer of them may peak below the baseline."
    )


def _one_row(bench: Bench) -> None:
    """Join one row with all rows of a table, by a comparison and by a formula. The first run builds the index."""
    from bench.engines.spark_session import spark_session
    from sparkext import configure, report

    expected = (ONE_ROWS_MATCHES, ONE_ROWS_MATCHES * (ONE_ROWS_MATCHES - 1) // 2)
    table = []
    with (
        TemporaryDirectory() as folder,
        spark_session(1, configure, **{"spark.python.worker.reuse": "false"}) as spark,
    ):
        with step("writing the table"):
            spark.range(0, ONE_ROWS_MATCHES, 1, 4).selectExpr("int(id) AS v").write.parquet(f"{folder}/many")
        spark.read.parquet(f"{folder}/many").createOrReplaceTempView("many")
        for name, condition in {
            "a comparison": f"x + {ONE_ROWS_MATCHES} > v",
            "a formula": f"x + v < {ONE_ROWS_MATCHES}",
        }.items():
            query = f"SELECT /*+ PIPELINED_JOIN(many) */ count(*), sum(v) FROM range(1) t(x) JOIN many ON {condition}"
            for run in ("first", "second"):
                out = spark.sql(query)
                with step(f"{name}, {run} run"):
                    started = time.perf_counter()
                    [row] = out.collect()
                    seconds = time.perf_counter() - started
                if tuple(row) != expected:
                    raise WrongAnswerError(f"{name}: got {tuple(row)}, expected {expected}")
                found = report(out)
                mapped = (found.joins[0].index_bytes or 0) + 4 * ONE_ROWS_MATCHES
                peak = max(task.peak_rss_bytes for task in found.tasks)
                table.append([name, run, f"{seconds:.1f}", mib(peak), mib(mapped)])
                bench.record(condition=name, run=run, seconds=seconds, peak=peak, mapped_files=mapped)
    header = ["one row joined by", "run", "s", "peak MiB", "mapped files MiB"]
    print(f"\n{format_table(header, table, left=range(2))}\n")


def _peak(spark: SparkSession, fan_out: int) -> tuple[int, int]:
    """Join with `fan_out` matches per key in a new worker; return bytes: its peak, and its mapped files."""
    from sparkext import pipelined_join, report

    keys = BUILD_ROWS // max(fan_out, 1)
    build = _build_table(BUILD_ROWS, PAYLOAD_BYTES, keys)
    probe_rows = OUTPUT_ROWS // max(fan_out, 1)
    probe = _probe_side(spark, probe_rows, keys, first_key=0 if fan_out else keys)
    out = probe.transform(pipelined_join(build, on="key"))
    _check(out, build, probe_rows, keys, fan_out)
    found = report(out)
    index = found.joins[0].index_bytes
    assert index is not None
    return max(task.peak_rss_bytes for task in found.tasks), build.nbytes + index


def _build_table(rows: int, payload_bytes: int, keys: int | None = None) -> pa.Table:
    ids = np.arange(rows, dtype=np.int64)
    text = padded(ids, payload_bytes, "x")
    return pa.table({"key": ids % (keys or rows), "id": ids, "text": text})


def _probe_side(spark: SparkSession, rows: int, keys: int, first_key: int) -> DataFrame:
    numbers = spark.range(0, rows, 1, 1)
    return numbers.selectExpr(f"id % {keys} + {first_key} AS key", "id AS probe_id")


def _check(out: DataFrame, build: pa.Table, probe_rows: int, keys: int, fan_out: int) -> None:
    """Run the join, and compare its count and two sums with expected values.

    Raises
    ------
    WrongAnswerError
    """
    from pyspark.sql import functions as F

    [row] = out.agg(F.count("*"), F.sum("id"), F.sum(F.length("text"))).collect()
    expected: tuple[int, int | None, int | None] = (0, None, None)
    if fan_out:
        id_sums = np.bincount(build["key"].to_numpy(), weights=build["id"].to_numpy(), minlength=keys)
        probes = np.bincount(np.arange(probe_rows) % keys, minlength=keys)
        rows = probe_rows * fan_out
        expected = (rows, round(float(id_sums @ probes)), rows * PAYLOAD_BYTES)
    if tuple(row) != expected:
        raise WrongAnswerError(f"fan-out {fan_out:,}: got {tuple(row)}, expected {expected}")
