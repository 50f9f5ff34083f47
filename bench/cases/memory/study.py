"""The study of delivery modes, which measures the claims of paper 4 (Kawashima & Tatebe).

Each run is a process in its own control group, with a pipeline of three joins as in a Spark worker: delivery mode ×
fan-out × memory limit, then threads × index size. Answers are compared with calculated values. `make study` writes the
results to a file of its own, and `python -m bench report` draws them.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.cases.memory.study_worker import command, expected
from bench.control_groups import NoControlGroupsError, Outcome, run_limited
from bench.harness import TINY, Bench, Case, WrongAnswerError, step

NOTES = """\
Measured for each run: how it ends, the peak memory of its control group, its seconds and rows, and the budgets of its
operators; cache misses, if the system offers counters of the processor. Build sides and their indexes are written
beforehand, and mapped. Configurations alternate. docs/delivery-study.md describes the set-up."""

MODES = ("adaptive", "morsel", "block", "tuple", "materialize", "materialize_parallel")
FAN_OUTS = (0.1, 1, 10, 1_000, 100_000)
LIMITS = (None, 1 << 30, 400 << 20)
OUTPUT_ROWS = 4_000_000
TUPLES = 20_000
"""Result rows in the mode `tuple`, which needs four calls per row, of tens of microseconds each."""

SMALL_INDEX, LARGE_INDEX = 100_000, 4_000_000
"""Build rows, with 24 bytes of index each: smaller than the last-level cache, and many times as large."""

TIMEOUT = 120


def cases() -> list[Case]:
    """Return one case for each part of the study."""
    titles = {
        "delivery": "delivery modes by matches per row and memory limit",
        "threads": "cooperative and independent threads by size of the index",
    }
    return [
        Case(f"study.{part}", title, partial(_run, part), scaled=False, named=True) for part, title in titles.items()
    ]


def _run(part: str, bench: Bench) -> None:
    configurations = [each for each in _configurations(bench) if each["part"] == part]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        _prepare(Path(folder), configurations)
        for number in range(bench.runs):
            for configuration in configurations:
                result = _measured(Path(folder), configuration)
                wrong += result["outcome"] == "wrong answer"
                bench.record(**configuration, run=number, **result)
    if wrong:
        raise WrongAnswerError(f"{wrong} runs gave wrong answers")


def _configurations(bench: Bench) -> Iterator[dict[str, Any]]:
    scale = TINY if bench.tiny else 1
    for limit, fan_out, delivery in itertools.product(LIMITS[: 1 if bench.tiny else None], FAN_OUTS, MODES):
        yield _configuration("delivery", delivery, fan_out, limit, SMALL_INDEX, "cooperative", 1, scale)
    for build_rows, (threads, cores) in itertools.product(
        (SMALL_INDEX, bench.sized(LARGE_INDEX)), (("cooperative", 1), ("cooperative", 2), ("independent", 2))
    ):
        for fan_out in (1, 10):
            yield _configuration("threads", "adaptive", fan_out, None, build_rows, threads, cores, scale)


def _configuration(
    part: str, delivery: str, fan_out: float, limit: int | None, build_rows: int, threads: str, cores: int, scale: int
) -> dict[str, Any]:
    rows = min(TUPLES, OUTPUT_ROWS // scale) if delivery == "tuple" else OUTPUT_ROWS // scale
    return {
        "part": part,
        "delivery": delivery,
        "fan_out": fan_out,
        "limit": limit,
        "build_rows": build_rows,
        "threads": threads,
        "cores": 2 if delivery == "materialize_parallel" else cores,
        "probe_rows": max(1, int(rows / max(fan_out, 1))),
    }


def _prepare(folder: Path, configurations: Sequence[dict[str, Any]]) -> None:
    """Write every build side, and build its index by a run."""
    sides = {(each["build_rows"], max(1, int(each["fan_out"]))) for each in configurations}
    sides |= {(rows, 1) for rows, _ in sides}
    for rows, fan_out in sorted(sides):
        with step(f"build side of {rows:,} rows, {fan_out:,} a key"):
            _called(folder, "prepare", {"rows": rows, "fan_out": fan_out}, None)
    for rows, fan_out in sorted(sides):
        with step(f"index of {rows:,} rows, {fan_out:,} a key"):
            _called(folder, "run", _configuration("", "adaptive", fan_out, None, rows, "cooperative", 1, 10), None)


def _measured(folder: Path, configuration: dict[str, Any]) -> dict[str, Any]:
    limit = "no limit" if configuration["limit"] is None else f"{configuration['limit'] >> 20} MiB"
    names = ("delivery", "fan_out", "threads", "cores", "build_rows")
    with step(f"{', '.join(str(configuration[name]) for name in names)}, {limit}"):
        try:
            outcome = _called(folder, "run", configuration, configuration["limit"])
        except NoControlGroupsError as problem:
            if configuration["limit"] is not None:
                return {"outcome": "skipped", "reason": str(problem)}
            raise
    result: dict[str, Any] = {"outcome": outcome.ending, "group_peak": outcome.peak, "swap": outcome.swap}
    if outcome.ending != "finished":
        return {**result, "errors": outcome.errors[-500:]}
    answer = json.loads(outcome.output)
    del answer["decisions"]  # thousands of values, which the budgets summarise
    if (answer["rows"], answer["total"]) != expected(configuration):
        print(f" WRONG: {answer['rows']}, {answer['total']}", file=sys.stderr)
        return {**result, "outcome": "wrong answer"}
    return {**result, **answer}


def _called(folder: Path, what: str, given: dict[str, Any], limit: int | None) -> Outcome:
    outcome = run_limited(command(what, folder, given), limit, TIMEOUT)
    if limit is None and outcome.ending != "finished":
        raise RuntimeError(outcome.errors)
    return outcome
