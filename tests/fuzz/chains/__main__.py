"""`python -m tests.fuzz.chains`: random chains of joins, as pipelines in this process and through Spark.

Pipelines in this process are compared with DuckDB, those in Spark with Spark's own joins and DuckDB. Rows are compared
as multisets.

Exit status: 0, or 1 if any case differed or failed. Each such case is printed with the command that runs it alone, and
once more with as few joins, columns and rows as still fail.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb

from tests.fuzz.chains.cases import COMBINATIONS, Case, in_sql, make_case
from tests.fuzz.chains.pipeline import Outcome, difference, run_duckdb, run_pipeline
from tests.fuzz.chains.shrinking import shrunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_PROBLEMS = 10
_PROGRESS_EVERY = 100

Check = Callable[[Case], tuple[Outcome, list[str]]]
"""Runs a case; returns its outcome and the list of its problems."""


@dataclass
class Tally:
    """Counts of the cases that have run in this process (`way` is `pipeline`) or through Spark (`spark`)."""

    way: str
    cases: int = 0
    rows: int = 0
    empty: int = 0
    combinations: set[object] = field(default_factory=set)
    paths: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def count(self, case: Case, outcome: Outcome) -> None:
        """Count a case."""
        self.cases += 1
        self.rows += outcome.table.num_rows
        self.empty += not outcome.table.num_rows
        self.combinations.add(case.combination)
        self.paths.update(outcome.paths)

    def __str__(self) -> str:
        lines = [
            f"{self.way}: {self.cases:,} cases, {len(self.problems)} wrong; {self.rows:,} rows,"
            f" {self.empty:,} empty results, {len(self.combinations):,} of {len(COMBINATIONS):,} combinations of kind,"
            " algorithm, budget, null rate and duplication"
        ]
        lines += [f"    {count:>9,}  {path}" for path, count in sorted(self.paths.items())]
        return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run as many cases as `argv` requests."""
    arguments = _parser().parse_args(argv)
    print(f"seed {arguments.seed}", flush=True)
    counts = {"pipeline": arguments.cases, "spark": arguments.spark_cases}
    if arguments.spark_cases is None:
        counts["spark"] = arguments.cases // 10
    tallies = []
    for way in [arguments.through] if arguments.through else list(counts):
        numbers = range(counts[way]) if arguments.case is None else [arguments.case]
        if numbers:
            with _WAYS[way]() as check:
                tallies.append(run(way, arguments.seed, numbers, check, show=arguments.case is not None))
    print(*tallies, sep="\n", flush=True)
    return 1 if any(tally.problems for tally in tallies) else 0


def run(way: str, seed: int, numbers: Iterable[int], check: Check, show: bool = False) -> Tally:
    """Run these cases, and print their problems immediately."""
    tally = Tally(way)
    started = time.perf_counter()
    for number in numbers:
        case = make_case(seed, number)
        if show:
            print(case.describe(), flush=True)
        problems = _problems(tally, case, check)
        if problems:
            alone = f"python -m tests.fuzz.chains --seed {seed} --through {way} --case {number}"
            print("\n".join([f"WRONG, alone: {alone}", *problems, case.describe()]), flush=True)
            tally.problems.append(alone)
            smaller = shrunk(case, lambda other: bool(_problems(Tally(way), other, check)))
            problems = _problems(Tally(way), smaller, check)
            print("\n".join(["the same, shrunk:", *problems, smaller.describe()]) + "\n", flush=True)
        if tally.cases % _PROGRESS_EVERY == 0:
            seconds = time.perf_counter() - started
            print(f"  {way}: {tally.cases:,} cases in {seconds:.0f} s", file=sys.stderr, flush=True)
        if len(tally.problems) >= _MOST_PROBLEMS:
            print(f"stopped after {len(tally.problems)} that are wrong", flush=True)
            break
    return tally


def _problems(tally: Tally, case: Case, check: Check) -> list[str]:
    try:
        outcome, problems = check(case)
    except Exception as error:  # any error is a finding
        tally.cases += 1
        return [f"{type(error).__name__}: {error}"]
    tally.count(case, outcome)
    return problems


@contextmanager
def pipeline_check() -> Iterator[Check]:
    """Yield a function that compares a pipeline in this process with DuckDB."""
    with _duckdb() as connection:

        def check(case: Case) -> tuple[Outcome, list[str]]:
            outcome = run_pipeline(case)
            return outcome, _told("DuckDB", difference(case, outcome.table, run_duckdb(case, connection)))

        yield check


@contextmanager
def spark_check() -> Iterator[Check]:
    """Yield a function that compares the extension's plans with Spark's own and with DuckDB, in a new session."""
    from tests.fuzz.chains.through_spark import SETTINGS
    from tests.support.harness.session import harness_session

    with (
        TemporaryDirectory() as folder,
        harness_session(**SETTINGS) as spark,
        checked_by_spark(spark, Path(folder)) as check,
    ):
        yield check


@contextmanager
def checked_by_spark(spark: SparkSession, folder: Path) -> Iterator[Check]:
    """Yield the same function for a session with the extension in hint mode; tables are files in `folder`."""
    from tests.fuzz.chains.through_spark import SparkRunner

    runner = SparkRunner(spark, folder)
    with _duckdb() as connection:

        def check(drawn: Case) -> tuple[Outcome, list[str]]:
            case = in_sql(drawn)
            outcome, own = runner.run(case)
            problems = [] if own is None else _told("Spark's own joins", difference(case, outcome.table, own))
            problems += _told("DuckDB", difference(case, outcome.table, run_duckdb(case, connection)))
            return outcome, problems

        yield check


_WAYS = {"pipeline": pipeline_check, "spark": spark_check}


def _told(oracle: str, found: str) -> list[str]:
    return [f"against {oracle}: {found}"] if found else []


@contextmanager
def _duckdb() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # tables are small
        yield connection


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.fuzz.chains", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="in this process, against DuckDB (default: 2000)")
    parser.add_argument("--spark-cases", type=int, help="through Spark (default: a tenth of --cases)")
    parser.add_argument("--seed", type=int, default=1, help="which cases (default: 1)")
    parser.add_argument("--through", choices=list(_WAYS), help="only this way")
    parser.add_argument("--case", type=int, help="only case number so and so, shown in full")
    return parser


if __name__ == "__main__":
    sys.exit(main())
