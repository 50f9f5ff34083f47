"""`python -m bench [case …]` checks answers, then times cases, each in its own process (one for all with `--quick`).

`python -m bench compare OLD NEW` reports slower cases; `python -m bench report` draws the figures of the documentation.
Exit status: 0, 1 if any answer was wrong or a case failed, 2 for a bad call.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.control_groups import NoControlGroupsError
from bench.harness import Bench, Case, WrongAnswerError
from bench.quick import JVM, QUICK, SCALE_FACTOR
from bench.report.facts import facts, header
from bench.report.result_files import TINY
from sparkext.cli.tpch import DEFAULT_ROOT
from sparkext.errors import SparkExtError
from sparkext.wording import format_table

SUITES = {
    "micro": "kernels.micro",
    "kernels": "kernels.joins",
    "groups": "kernels.groups",
    "engines": "kernels.pipelines",
    "end_to_end": "queries.end_to_end",
    "scan": "queries.scan",
    "ordered": "queries.ordered",
    "hard": "queries.hard",
    "tpch": "queries.tpch",
    "tpcds": "queries.tpcds",
    "scaling": "kernels.scaling",
    "memory": "memory.indexes",
    "controller": "memory.controller",
    "study": "memory.study",
    "survival": "memory.survival",
    "limits": "memory.limits",
    "soak": "memory.soak",
    "comet": "queries.comet",
    "lakes": "queries.lakes",
    "buckets": "queries.buckets",
    "exchange": "partitioned.exchange",
    "skew": "partitioned.skew",
    "nexmark": "streams.nexmark",
    "flink": "streams.flink",
    "streams": "streams.joins",
    "matrix": "streams.matrix",
    "ordered_streams": "streams.ordered",
    "cql": "streams.cql",
}
"""The module of each suite in `bench.cases`. The name of a case begins with the name of its suite."""
RESULTS = Path(__file__).parent / "results"
_CHILD = "SPARKEXT_BENCH_CHILD"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases that `argv` names."""
    given = list(sys.argv[1:] if argv is None else argv)
    if _CHILD in os.environ:
        return _run_here([Bench(**values) for values in _decoded(os.environ.pop(_CHILD))])
    if given[:1] in (["compare"], ["report"]):
        module = {"compare": "compare", "report": "summary"}[given[0]]
        return int(importlib.import_module(f"bench.report.{module}").main(given[1:]))
    arguments = _parser().parse_args(given)
    cases = all_cases()
    if arguments.list:
        width = max(map(len, cases))
        marks = {name: "*" if case.named else " " for name, case in cases.items()}
        print("\n".join(f"{name:<{width}} {marks[name]} {case.title}" for name, case in cases.items()))
        print("* only when it is named, by itself or with its suite")
        return 0
    unknown = [name for name in arguments.cases if name not in SUITES and name not in cases]
    if unknown:
        print(f"no such case: {', '.join(unknown)}; see python -m bench --list", file=sys.stderr)
        return 2
    return _run_all(_chosen(cases, arguments), arguments)


def all_cases() -> dict[str, Case]:
    """Return every case of every suite, by name."""
    return {case.name: case for suite in SUITES for case in _suite(suite).cases()}


def _chosen(cases: Mapping[str, Case], arguments: argparse.Namespace) -> list[Case]:
    if not arguments.cases:
        return [cases[name] for name in QUICK] if arguments.quick else [c for c in cases.values() if not c.named]
    return [case for case in cases.values() if {case.name, case.name.split(".")[0]} & set(arguments.cases)]


def _run_all(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    found = facts()
    results = _results_file(arguments, found)
    print(header(found), flush=True)
    if arguments.quick:
        os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM)
        benches = [bench for case in cases for bench in _benches(case, arguments, results)]
        return _spawn(benches, _cores())
    print(f"\n{arguments.runs} runs each, alternating, after the check and one warm-up; {results}", flush=True)
    failed, took = [], {}
    suite = ""
    for case in cases:
        if suite != (suite := case.name.split(".")[0]):
            print(f"\n{'=' * 100}\n{suite}\n\n{_suite(suite).NOTES}", flush=True)
        for bench in _benches(case, arguments, results):
            print(f"\n{'-' * 100}\n{_title(case, bench)}\n", flush=True)
            started = time.monotonic()
            if _spawn([bench], bench.threads):
                failed.append(_title(case, bench))
            took[suite] = took.get(suite, 0.0) + time.monotonic() - started
    times = [[name, f"{seconds / 60:.1f}"] for name, seconds in [*took.items(), ("all", sum(took.values()))]]
    print(f"\n{format_table(['suite', 'minutes'], times)}\nresults: {results}", flush=True)
    if failed:
        print("\nFAILED:\n" + "\n".join(failed), flush=True)
    return 1 if failed else 0


def _results_file(arguments: argparse.Namespace, found: Mapping[str, str]) -> Path | None:
    """Create the results file of this run, with the facts as its first line; None for a quick run without `--json`."""
    path: Path | None = arguments.json and arguments.json.absolute()
    if path is None and arguments.quick:
        return None
    if path is None:
        path = RESULTS / f"run-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(json.dumps({"facts": {**found, "data": TINY if arguments.quick else "full"}}) + "\n")
    return path


def _benches(case: Case, arguments: argparse.Namespace, results: Path | None) -> list[Bench]:
    """Return one run per scale factor and number of threads, as far as the case depends on them."""
    factors = [SCALE_FACTOR] if arguments.quick else arguments.sf
    if arguments.quick:
        threads = [case.threads or _cores()]
    else:
        threads = (arguments.threads or case.threaded) if case.threaded else [case.threads or _cores()]
    return [
        Bench(
            case.name,
            scale_factor,
            number,
            1 if arguments.quick else arguments.runs,
            arguments.data.absolute(),
            results,
            arguments.quick,
        )
        for scale_factor in (factors if case.scaled else factors[:1])
        for number in threads
    ]


def _title(case: Case, bench: Bench) -> str:
    scale = f", scale factor {bench.scale_factor:g}" if case.scaled else ""
    return f"{case.name}: {case.title}{scale}, {bench.threads} thread{'s' * (bench.threads > 1)}"


def _spawn(benches: Sequence[Bench], threads: int) -> int:
    """Run cases in a new process, with thread pools limited before anything is imported; return its exit status."""
    limits = dict.fromkeys(
        ("POLARS_MAX_THREADS", "TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS"), str(threads)
    )
    environment = {**os.environ, **limits, _CHILD: json.dumps([dataclasses.asdict(b) for b in benches], default=str)}
    return subprocess.run([sys.executable, "-m", "bench"], env=environment, check=False).returncode


def _run_here(benches: Sequence[Bench]) -> int:
    """Run cases in this process, on as many cores as threads. Return 1 if any failed, else 0."""
    cores = sorted(os.sched_getaffinity(0))
    failed = 0
    for bench in benches:
        case = next(case for case in _suite(bench.case.split(".")[0]).cases() if case.name == bench.case)
        if len(benches) > 1:
            print(f"\n{'-' * 100}\n{_title(case, bench)}\n", flush=True)
        os.sched_setaffinity(0, cores[: bench.threads])
        try:
            case.run(bench)
        except NoControlGroupsError as problem:
            print(f"skipped: {problem}", flush=True)
        except (WrongAnswerError, SparkExtError) as error:
            print(f"FAILED: {error}", flush=True)
            failed = 1
        finally:
            os.sched_setaffinity(0, cores)
    return failed


def _suite(name: str) -> ModuleType:
    return importlib.import_module(f"bench.cases.{SUITES[name]}")


def _decoded(text: str) -> list[dict[str, Any]]:
    return [
        {**values, "data": Path(values["data"]), "results": values["results"] and Path(values["results"])}
        for values in json.loads(text)
    ]


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="case", help="a suite or a case (default: all but those marked *)")
    parser.add_argument("--list", action="store_true", help="show the cases and stop")
    parser.add_argument(
        "--quick", action="store_true", help="some cases of every suite, or those that are named, on tiny data, one run"
    )
    parser.add_argument("--sf", type=float, nargs="+", default=[1.0], help="TPC-H scale factors (default: 1)")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each contestant (default: 3)")
    parser.add_argument(
        "--threads", type=int, nargs="+", help="for engines and scaling in memory (default: what the case has)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=DEFAULT_ROOT,
        help="folder that holds one sub-folder of tables per scale factor (default: %(default)s)",
    )
    parser.add_argument(
        "--json", type=Path, help="append results to this file as JSON lines (default: a new one in bench/results)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
