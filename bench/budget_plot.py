"""How the budgets of a join followed the memory that was free, from what `controller.follow` recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.theme import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUDGETS = "controller.follow"
_TITLES = {
    "controller.follow.group": "In a control group",
    "controller.follow.address-space": "In a limited address space",
}
_OPERATORS = ("first join", "second join", "third join", "payload")
_MOST_POINTS = 400
_MIB = 2**20


def budget_plot(lines: Sequence[Mapping[str, Any]], theme: Theme) -> Figure:
    """A column for each run: the limit, what is in use and what is free above, the budgets of every operator below.

    Of a line are read `events` (time, what happened), `samples` (time, limit, bytes in use) and `decisions` (time,
    operator, headroom, budget, rows produced); times are of one clock.
    """
    import matplotlib.pyplot as plt

    widths = [len(line["events"]) for line in lines]
    figure, axes = plt.subplots(
        2, len(lines), figsize=(9.6, 6), sharex="col", squeeze=False, width_ratios=widths, layout="constrained"
    )
    for line, above, below in zip(lines, *axes, strict=True):
        _memory(above, line, theme)
        _budgets(below, line, theme)
        above.set_title(_TITLES.get(line["case"], line["case"]))
    axes[0][0].set_ylabel("MiB")
    axes[1][0].set_ylabel("thousand rows a call")
    for row in (0, 1):
        figure.legend(
            *axes[row][0].get_legend_handles_labels(),
            loc="outside upper right" if row else "outside upper left",
            ncols=4,
            fontsize=8.5,
            markerscale=2.5,
        )
    return figure


def _memory(axes: Axes, line: Mapping[str, Any], theme: Theme) -> None:
    start = line["events"][0][0]
    times = [time - start for time, *_ in line["samples"]]
    axes.step(times, _mib(limit for _, limit, _ in line["samples"]), where="post", color=theme.ink, label="limit")
    axes.plot(times, _mib(used for *_, used in line["samples"]), color=theme.lose, label="in use")
    decided = _thinned([each for each in line["decisions"] if each[2] is not None])
    free = _mib(headroom for _, _, headroom, *_ in decided)
    axes.scatter([each[0] - start for each in decided], free, s=3, color=theme.win, label="free, as decided by")
    axes.set_ylim(0, 1.18 * max(limit for _, limit, _ in line["samples"]) / _MIB)
    _mark(axes, line, theme, named=True)


def _budgets(axes: Axes, line: Mapping[str, Any], theme: Theme) -> None:
    start = line["events"][0][0]
    colours = (theme.muted, theme.polars, theme.spark, theme.win)
    for operator in sorted({each[1] for each in line["decisions"]}):
        own = _thinned([each for each in line["decisions"] if each[1] == operator])
        axes.scatter(
            [each[0] - start for each in own],
            [each[3] / 1e3 for each in own],
            s=4,
            color=colours[operator % len(colours)],
            label=_OPERATORS[operator] if operator < len(_OPERATORS) else f"operator {operator}",
        )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds since the pipeline began")
    _mark(axes, line, theme, named=False)


def _mark(axes: Axes, line: Mapping[str, Any], theme: Theme, named: bool) -> None:
    start = line["events"][0][0]
    for number, (time, name) in enumerate(line["events"][1:]):
        axes.axvline(time - start, color=theme.ink, linewidth=0.9, linestyle=":")
        if named:
            axes.annotate(
                name,
                (time - start, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -10 - 11 * (number % 2)),  # neighbours in two lines, or they would run into each other
                textcoords="offset points",
                fontsize=7.5,
            )


def _thinned(decisions: Sequence[Any]) -> Sequence[Any]:
    """At most some of them, evenly: a picture has no room for more."""
    return decisions[:: max(1, len(decisions) // _MOST_POINTS)]


def _mib(sizes: Iterable[int]) -> list[float]:
    return [size / _MIB for size in sizes]
