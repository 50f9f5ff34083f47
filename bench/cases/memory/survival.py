"""Exploding joins in a control group of 1.5 GiB with Spark and its workers: which plans finish."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.cases.memory import large_build_job
from bench.cases.memory.survival_job import CONCURRENT, QUERIES, WAYS, expected, write_tables
from bench.control_groups import Outcome, mib, python, run_limited
from bench.harness import Bench, Case, WrongAnswerError, step
from sparkext.wording import format_table

NOTES = """\
Measured for each job: how it ends, the peak memory of its control group (Spark, its workers, file pages), and its time
since the start of Python. The result of one morsel alone takes hundreds of MiB: there are 1 M probe rows and three
joins, with 200 bytes of payload from each, and 12 adjacent probe rows have 100,000 matches each. Swapping is not
allowed.
All contestants run with the same heap, on the same tables. With mapInArrow, a function written by hand reads the build
sides in every worker and joins batch by batch; so do the delivery modes of the engine with which the package's own is
compared, but on mapped indexes. Spark's own plans have one hint on all build sides, and run without the
extension. OutOfMemoryError: the JVM or Spark's memory manager gave up within the limit.
survival.large-build: a build side of 14 M rows of 220 bytes, 2 M probe rows, 64 partitions. The memory that the JVM
leaves to the workers is a quarter of the build side. survival.hot-build: the same, but 99 of 100 build rows have one
key, which one probe row matches."""

LIMIT = 1536 << 20
TIMEOUT = 300


def cases() -> list[Case]:
    """Return the cases: exploding joins by sink, large build sides, and concurrent queries."""
    return [
        *(
            Case(
                f"survival.{sink}",
                f"an exploding join in 1.5 GiB, to {title}",
                partial(_run, sink),
                scaled=False,
                named=named,
            )
            for sink, title, named in [("noop", "a sink that drops every row", False), ("parquet", "Parquet", True)]
        ),
        *(
            Case(
                f"survival.{name}",
                f"a join in 1.5 GiB with a build side of 3 GiB{title}, a count and sums",
                partial(_run_large_build, hot),
                scaled=False,
                named=True,
            )
            for name, title, hot in [("large-build", "", False), ("hot-build", " of one key", True)]
        ),
        *(
            Case(
                f"survival.{way}",
                f"{QUERIES} exploding joins at the same time in 1.5 GiB, {slots} tasks at a time",
                partial(_concurrent, way),
                scaled=False,
                named=slots < QUERIES,  # this case shows how Spark distributes its slots
            )
            for way, slots in CONCURRENT.items()
        ),
    ]


def _concurrent(way: str, bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder))
        with step(f"{QUERIES} queries"):
            command = python("-m", "bench.cases.memory.survival_job", WAYS[0], way, folder)
            found = run_limited(command, LIMIT, 2 * TIMEOUT)
    if found.ending != "finished":
        raise WrongAnswerError(f"{found.ending}: {found.errors[-1000:]}")
    answer = json.loads(found.output.splitlines()[-1])
    seconds = answer.pop("seconds")
    if answer != expected():
        raise WrongAnswerError(f"{answer}, expected {expected()}")
    bench.record(ending=found.ending, seconds=seconds, peak=found.peak, swap=found.swap)
    print(
        f"all finished; {min(seconds):.1f} to {max(seconds):.1f} s each ({max(seconds) / min(seconds):.2f} times);"
        f" peak {mib(found.peak)} of {mib(LIMIT)} MiB, swap {mib(found.swap)}"
    )


def _run(sink: str, bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with step("writing the tables"):
            write_tables(Path(folder))
        jobs = {way: python("-m", "bench.cases.memory.survival_job", way, sink, folder) for way in WAYS}
        _compare(bench, jobs, expected(), sink=sink)


def _run_large_build(hot: bool, bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with step("writing the tables"):
            large_build_job.write_tables(Path(folder), hot=hot)
        jobs = {way: python("-m", "bench.cases.memory.large_build_job", way, folder) for way in large_build_job.WAYS}
        _compare(bench, jobs, large_build_job.expected(hot=hot))


def _compare(bench: Bench, jobs: Mapping[str, Sequence[str]], answer: Mapping[str, int], **values: str) -> None:
    """Run the jobs one by one within the limit, and print how each ended.

    Raises `WrongAnswerError` if a finished job prints another answer than `answer`.
    """
    table = []
    for way, command in jobs.items():
        with step(way):
            found = run_limited(command, LIMIT, TIMEOUT)
        ending = _ending(found)
        if ending == "finished":
            told = json.loads(found.output.splitlines()[-1])
            if told != answer:
                raise WrongAnswerError(f"{way}: {told}, expected {answer}")
        elif ending == "failed":
            print("  " + "\n  ".join(found.errors.strip().splitlines()[-3:]))
        table.append([way, ending, f"{found.seconds:.0f}", mib(found.peak), mib(found.swap)])
        bench.record(contestant=way, ending=ending, seconds=found.seconds, peak=found.peak, swap=found.swap, **values)
    print(f"\n{format_table(['way', 'outcome', 's', 'peak MiB', 'swap MiB'], table, left=range(2))}\n")
    print(f"{answer['rows']:,} result rows; the limit is {mib(LIMIT)} MiB; rows and sums of those that finish agree")


def _ending(found: Outcome) -> str:
    """Return the outcome; a JVM with too small a heap fails with an error before the system kills a process."""
    return "OutOfMemoryError" if found.ending == "failed" and "OutOfMemoryError" in found.errors else found.ending
