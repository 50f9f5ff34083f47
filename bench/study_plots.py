"""Draws the study's results: `python -m bench.study_plots bench/results/study.jsonl docs`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.study import DELIVERIES

COLOURS = dict(zip(DELIVERIES, ("#1b6ca8", "#e07b39", "#6a994e", "#b5179e", "#8d99ae", "#4a4e69"), strict=True))
Key = tuple[Any, ...]


def main(sources: Sequence[Path], folder: Path) -> None:
    """Write one picture per question that the results answer."""
    results = [json.loads(line) for source in sources for line in source.read_text().splitlines()[1:]]
    folder.mkdir(parents=True, exist_ok=True)
    parts = {result["part"] for result in results}
    if "delivery" in parts:
        _rates(results, folder / "study-rates.png")
        _peaks(results, folder / "study-peaks.png")
    if "threads" in parts:
        _threads(results, folder / "study-threads.png")


def grouped(results: Sequence[dict[str, Any]], part: str) -> dict[Key, list[dict[str, Any]]]:
    """The runs of each configuration."""
    found: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        if result["part"] == part:
            names = (
                ("limit", "fan_out", "delivery")
                if part == "delivery"
                else ("build_rows", "fan_out", "threads", "cores")
            )
            found[tuple(result[name] for name in names)].append(result)
    return found


def _fan_outs(results: Sequence[dict[str, Any]], part: str) -> list[float]:
    return sorted({result["fan_out"] for result in results if result["part"] == part})


def _limits(results: Sequence[dict[str, Any]]) -> list[int | None]:
    return sorted({result["limit"] for result in results}, key=lambda limit: -(limit or 1 << 60))


def _named(limit: int | None) -> str:
    return "no limit" if limit is None else f"limit {limit >> 20} MiB"


def _rates(results: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib.pyplot as plt

    limits, fan_outs = _limits(results), _fan_outs(results, "delivery")
    figure, axes = plt.subplots(1, len(limits), figsize=(5 * len(limits), 4.2), sharey=True)
    runs = grouped(results, "delivery")
    for axis, limit in zip(axes, limits, strict=True):
        for delivery in DELIVERIES:
            rates, died = [], []
            for place, fan_out in enumerate(fan_outs):
                each = runs[limit, fan_out, delivery]
                done = [run["rows"] / run["seconds"] / 1e6 for run in each if run["outcome"] == "finished"]
                rates.append(median(done) if len(done) == len(each) and done else float("nan"))
                if len(done) < len(each):
                    died.append(place)
            axis.plot(
                range(len(fan_outs)), rates, marker="o", color=COLOURS[delivery], label=delivery.replace("_", " ")
            )
            axis.scatter(
                died, [0.003 * 1.6 ** DELIVERIES.index(delivery)] * len(died), marker="X", s=70, color=COLOURS[delivery]
            )
        axis.set_yscale("log")
        axis.set_xticks(range(len(fan_outs)), [f"{fan_out:,}" for fan_out in fan_outs])
        axis.set_title(_named(limit))
        axis.set_xlabel("matches a probe row")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("million result rows a second (✕: killed)")
    figure.suptitle("Three joins, one core: how operators hand on their rows")
    _save(figure, path)


def _peaks(results: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib.pyplot as plt

    limits, fan_outs = _limits(results), _fan_outs(results, "delivery")
    figure, axes = plt.subplots(1, len(limits), figsize=(5 * len(limits), 4.2), sharey=True)
    runs = grouped(results, "delivery")
    for axis, limit in zip(axes, limits, strict=True):
        for place, delivery in enumerate(DELIVERIES):
            for number, fan_out in enumerate(fan_outs):
                each = runs[limit, fan_out, delivery]
                peaks = [run["group_peak"] for run in each if "group_peak" in run]
                if not peaks:
                    continue
                killed = any(run["outcome"] != "finished" for run in each)
                axis.bar(
                    number + (place - 2.5) * 0.14,
                    max(peaks) / 2**20,
                    0.13,
                    color=COLOURS[delivery],
                    alpha=0.35 if killed else 1,
                    label=delivery.replace("_", " ") if number == 0 else None,
                )
                if killed:
                    axis.text(
                        number + (place - 2.5) * 0.14,
                        max(peaks) / 2**20,
                        "✕",
                        ha="center",
                        va="bottom",
                        color=COLOURS[delivery],
                    )
        if limit is not None:
            axis.axhline(limit / 2**20, color="black", linewidth=1, linestyle="--")
        axis.set_xticks(range(len(fan_outs)), [f"{fan_out:,}" for fan_out in fan_outs])
        axis.set_title(_named(limit))
        axis.set_xlabel("matches a probe row")
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("MiB at the highest, file pages included")
    figure.suptitle("What it takes (✕: killed at the limit)")
    _save(figure, path)


def _threads(results: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib.pyplot as plt

    runs, fan_outs = grouped(results, "threads"), _fan_outs(results, "threads")
    sizes = sorted({key[0] for key in runs})
    figure, axes = plt.subplots(1, len(sizes), figsize=(5 * len(sizes), 3.8), sharey=True)
    ways = [
        ("cooperative", 1, "one thread"),
        ("cooperative", 2, "two, cooperative"),
        ("independent", 2, "two, independent"),
    ]
    for axis, size in zip(axes, sizes, strict=True):
        for place, (threads, cores, label) in enumerate(ways):
            for number, fan_out in enumerate(fan_outs):
                each = runs[size, fan_out, threads, cores]
                rate = median(run["rows"] / run["seconds"] / 1e6 for run in each if run["outcome"] == "finished")
                axis.bar(
                    number + (place - 1) * 0.27,
                    rate,
                    0.25,
                    color=("#8d99ae", "#1b6ca8", "#e07b39")[place],
                    label=label if number == 0 else None,
                )
        axis.set_xticks(range(len(fan_outs)), [f"{fan_out:,}" for fan_out in fan_outs])
        axis.set_xlabel("matches a probe row")
        axis.set_title(f"{size:,} build rows a join")
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("million result rows a second")
    figure.suptitle("Threads of one task")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="lower center", ncols=len(labels))
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=110)
    print(path)


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    main([Path(source) for source in sys.argv[1:-1]], Path(sys.argv[-1]))
