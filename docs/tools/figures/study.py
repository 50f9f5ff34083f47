"""The figures of the study of delivery modes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any

from docs.tools.figures import forms
from docs.tools.figures.archive import RESULTS, Archive
from docs.tools.figures.grid import Block
from sparkext.wording import format_markdown_table

Run = Mapping[str, Any]

_OUTPUTS = {
    "adaptive": "what memory allows, at most 131,072 rows and 64 MiB",
    "morsel": "200,000 rows",
    "block": "1,024 rows",
    "tuple": "one row",
    "materialize": "all rows",
    "materialize_parallel": "all rows, two threads",
}
_LIMITS = {"1 GiB": 1 << 30, "400 MiB": 400 << 20}
_LEAST_FAN_OUT = 1


@cache
def runs_of(part: str) -> list[Run]:
    """Return the runs of a part of the study: `delivery` or `threads`."""
    lines = (json.loads(line) for path in sorted(RESULTS.glob("study*.jsonl")) for line in path.open())
    return [line for line in lines if line.get("part") == part]


def rates(runs: Iterable[Run]) -> list[float]:
    """Return the result rows per second of each run that finished."""
    return [run["rows"] / run["seconds"] for run in runs if run["outcome"] == "finished"]


def deliveries(delivery: str, limit: int | None, fan_out_from: float = _LEAST_FAN_OUT) -> list[Run]:
    """Return the runs of a delivery mode under a memory limit, with at least `fan_out_from` matches per row."""
    return [
        run
        for run in runs_of("delivery")
        if (run["delivery"], run["limit"]) == (delivery, limit) and run["fan_out"] >= fan_out_from
    ]


def _modes(archive: Archive) -> str:
    lines = []
    for delivery, output in _OUTPUTS.items():
        free = deliveries(delivery, None)
        peaks = [run["group_peak"] for run in free]
        line = [f"`{delivery}`", output, _mrows(rates(free)), f"{min(peaks) >> 20:,} to {forms.mib(max(peaks))}"]
        for limit in _LIMITS.values():
            outcomes = dict.fromkeys(run["outcome"] for run in deliveries(delivery, limit))
            line.append(", ".join("finishes" if outcome == "finished" else outcome for outcome in outcomes))
        lines.append(line)
    header = ["mode", "what an output is", "rate", "memory", *(f"in {limit}" for limit in _LIMITS)]
    return format_markdown_table(header, lines)


def _mrows(found: Sequence[float]) -> str:
    low, high = (f"{rate / 1e6:.1f}" if rate >= 1e5 else f"{rate / 1e6:.3f}" for rate in (min(found), max(found)))
    return f"{low} Mrow/s" if low == high else f"{low} to {high} Mrow/s"


def thread_medians(build_rows: int, fan_out: int) -> dict[tuple[str, int], tuple[float, float]]:
    """Return the median rate and peak of each threading mode, by its name and number of threads."""
    found: dict[tuple[str, int], list[Run]] = {}
    for run in runs_of("threads"):
        if (run["build_rows"], run["fan_out"]) == (build_rows, fan_out):
            found.setdefault((run["threads"], run["cores"]), []).append(run)
    return {way: (median(rates(runs)), median(run["group_peak"] for run in runs)) for way, runs in found.items()}


def _threads(archive: Archive) -> str:
    cases = sorted({(run["build_rows"], run["fan_out"]) for run in runs_of("threads")})
    lines = []
    for build_rows, fan_out in cases:
        medians = thread_medians(build_rows, fan_out)
        ways = [medians[way] for way in (("cooperative", 1), ("cooperative", 2), ("independent", 2))]
        cells = (f"{rate / 1e6:.1f} Mrow/s, {forms.mib(peak)}" for rate, peak in ways)
        lines.append([f"{build_rows:,}", f"{fan_out:g}", *cells])
    header = ["build rows of a join", "matches a row", "one thread", "two, cooperative", "two, independent"]
    return format_markdown_table(header, lines)


BLOCKS: Mapping[str, Block] = {"study-modes": _modes, "study-threads": _threads}
