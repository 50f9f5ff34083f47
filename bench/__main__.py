"""`python -m bench [case …]`: checks answers, then times; every case in a process of its own.

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
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.facts import facts, header
from bench.harness import Bench, Case, WrongAnswerError
from sparkext.errors import SparkExtError
from sparkext.tpch import DEFAULT_ROOT

SUITES = ("kernels", "engines", "end_to_end", "scan", "ordered", "tpch", "memory", "controller", "survival")
_CHILD = "SPARKEXT_BENCH_CHILD"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases that `argv` names."""
    if _CHILD in os.environ:
        return _run_one(Bench(**_decoded(os.environ[_CHILD])))
    arguments = _parser().parse_args(argv)
    cases = {case.name: case for suite in SUITES for case in _suite(suite).cases()}
    if arguments.list:
        width = max(map(len, cases))
        print("\n".join(f"{name:<{width}}  {case.title}" for name, case in cases.items()))
        return 0
    unknown = [name for name in arguments.cases if name not in SUITES and name not in cases]
    if unknown:
        print(f"no such case: {', '.join(unknown)}; see python -m bench --list", file=sys.stderr)
        return 2
    chosen = [
        case
        for case in cases.values()
        if not arguments.cases or {case.name, case.name.split(".")[0]} & set(arguments.cases)
    ]
    return _run_all(chosen, arguments)


def _run_all(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    found = facts()
    print(f"{header(found)}\n\n{arguments.runs} runs each, alternating, after the check and one warm-up", flush=True)
    failed = []
    suite = ""
    for case in cases:
        if suite != (suite := case.name.split(".")[0]):
            print(f"\n{'=' * 100}\n{suite}\n\n{_suite(suite).NOTES}", flush=True)
        for bench in _benches(case, arguments, found):
            print(f"\n{'-' * 100}\n{_title(case, bench)}\n", flush=True)
            if _spawn(bench):
                failed.append(_title(case, bench))
    if failed:
        print("\nFAILED:\n" + "\n".join(failed), flush=True)
    return 1 if failed else 0


def _benches(case: Case, arguments: argparse.Namespace, found: dict[str, str]) -> list[Bench]:
    """Return one run per scale factor and number of threads, as far as the case depends on them."""
    return [
        Bench(
            case.name,
            scale_factor,
            threads,
            arguments.runs,
            arguments.data.absolute(),
            arguments.json and arguments.json.absolute(),
            found,
        )
        for scale_factor in (arguments.sf if case.scaled else arguments.sf[:1])
        for threads in (arguments.threads if case.threaded else [case.threads or _cores()])
    ]


def _title(case: Case, bench: Bench) -> str:
    scale = f", scale factor {bench.scale_factor:g}" if case.scaled else ""
    return f"{case.name}: {case.title}{scale}, {bench.threads} thread{'s' * (bench.threads > 1)}"


def _spawn(bench: Bench) -> int:
    """Run one case in a process of its own, with thread pools and cores limited before anything is imported."""
    values = dataclasses.asdict(bench)
    values.update(data=str(bench.data), json=bench.json and str(bench.json))
    threads = str(bench.threads)
    limits = dict.fromkeys(
        ("POLARS_MAX_THREADS", "TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS"), threads
    )
    environment = {**os.environ, **limits, _CHILD: json.dumps(values)}
    return subprocess.run([sys.executable, "-m", "bench"], env=environment, check=False).returncode


def _run_one(bench: Bench) -> int:
    case = next(case for case in _suite(bench.case.split(".")[0]).cases() if case.name == bench.case)
    del os.environ[_CHILD]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: bench.threads])
    try:
        case.run(bench)
    except (WrongAnswerError, SparkExtError) as error:
        print(f"FAILED: {error}", flush=True)
        return 1
    return 0


def _suite(name: str) -> ModuleType:
    return importlib.import_module(f"bench.{name}")


def _decoded(text: str) -> dict[str, Any]:
    values = json.loads(text)
    return {**values, "data": Path(values["data"]), "json": values["json"] and Path(values["json"])}


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help="a suite or a case; all if left out")
    parser.add_argument("--list", action="store_true", help="show the cases and stop")
    parser.add_argument("--sf", type=float, nargs="+", default=[3.0], help="TPC-H scale factors (default: 3)")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each contestant (default: 5)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="for the engines suite (default: 1 2)")
    parser.add_argument(
        "--data",
        type=Path,
        default=DEFAULT_ROOT,
        help="folder that holds one sub-folder of tables per scale factor (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, help="append results to this file as JSON lines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
