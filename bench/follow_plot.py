"""Draws how budgets follow memory: `python -m bench.follow_plot RESULTS.jsonl docs/budgets-follow.png`.

RESULTS is what `python -m bench controller.follow.group controller.follow.address-space --json RESULTS` appended to;
of each case the last line counts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.study_worker import JOINS

CASES = {
    "controller.follow.group": "a control group of 600 MiB",
    "controller.follow.address-space": "a limited address space",
}
NAMES = ["first join", "second join", "third join", "payload"]
COLOURS = ["#8d99ae", "#6a994e", "#e07b39", "#1b6ca8"]


def main(source: Path, picture: Path) -> None:
    """Draw one column per case."""
    import matplotlib.pyplot as plt

    lines = [json.loads(line) for line in source.read_text().splitlines()]
    found = {line["case"]: line for line in lines if line["case"] in CASES}
    widths = [len(result["events"]) for result in found.values()]
    figure, axes = plt.subplots(
        2, len(found), figsize=(2 + 1.9 * sum(widths), 7.5), sharex="col", squeeze=False, width_ratios=widths
    )
    for column, (case, result) in enumerate(found.items()):
        _memory(axes[0][column], result)
        _budgets(axes[1][column], result)
        axes[0][column].set_title(CASES[case])
    axes[0][0].set_ylabel("MiB")
    axes[1][0].set_ylabel("thousand rows that an operator may produce in a call")
    axes[0][0].legend(frameon=False, fontsize=8, loc="lower right")
    axes[1][0].legend(frameon=False, fontsize=8, loc="lower right", markerscale=3)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)
    print(picture)


def _memory(axis: Any, result: dict[str, Any]) -> None:
    start = result["events"][0][0]
    times = [time - start for time, _, _ in result["samples"]]
    decisions = [each for each in result["decisions"] if each[2] is not None]
    axis.step(times, _mib(limit for _, limit, _ in result["samples"]), where="post", color="black", label="limit")
    axis.plot(times, _mib(used for _, _, used in result["samples"]), color="#b5179e", label="in use")
    free = _mib(headroom for _, _, headroom, _, _ in decisions)
    axis.scatter([each[0] - start for each in decisions], free, s=2, color="#6a994e", label="headroom, as decided by")
    axis.set_ylim(0, 1.15 * max(limit for _, limit, _ in result["samples"]) / 2**20)
    _mark(axis, result, named=True)


def _budgets(axis: Any, result: dict[str, Any]) -> None:
    start = result["events"][0][0]
    for operator in range(JOINS + 1):
        own = [each for each in result["decisions"] if each[1] == operator]
        times, budgets = [each[0] - start for each in own], [each[3] for each in own]
        axis.scatter(times, [budget / 1e3 for budget in budgets], s=3, color=COLOURS[operator], label=NAMES[operator])
    axis.set_ylim(bottom=0)
    axis.set_xlabel("seconds since the pipeline began")
    _mark(axis, result, named=False)


def _mark(axis: Any, result: dict[str, Any], named: bool) -> None:
    start = result["events"][0][0]
    for time, name in result["events"][1:]:
        axis.axvline(time - start, color="black", linewidth=0.8, linestyle=":")
        if named:
            axis.annotate(
                name,
                (time - start, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -10),
                textcoords="offset points",
                fontsize=8,
            )
    axis.grid(alpha=0.3)


def _mib(sizes: Any) -> list[float]:
    return [size / 2**20 for size in sizes]


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
