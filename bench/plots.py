"""The figures of the report. Each answers one question at a glance, and none hides a case that is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.fit import power_law
from bench.ratios import HINTED, REWRITTEN, SPARK, Row, engine
from bench.result_files import Key, Timed
from bench.theme import Theme, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = {
    SPARK: "o",
    HINTED: "D",
    REWRITTEN: ">",
    "Spark 3.5": "X",
    "DuckDB": "s",
    "Polars": "^",
    "DataFusion": "v",
    "Acero": "P",
    "Comet": "h",
}
_TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_WIDTH = 9.6
_PALE = 0.4
_MIB = 2**20


@dataclass(frozen=True)
class Plot:
    """A figure: the name of its file, its heading, what to read from it, how it is drawn, and which results it shows.

    `results` has the keys of tables, and the names of cases that are no tables.
    """

    name: str
    title: str
    text: str
    draw: Callable[[Theme], Figure]
    results: tuple[Key | str, ...]


def ratio_plot(rows: Sequence[Row], label: Callable[[Row], str], theme: Theme) -> Figure:
    """A bar per case from 1 to the fastest competitor, a mark for every other: right of 1 this package is faster.

    A whisker shows how far single runs of both are from the medians; the bar is pale where some of them overlap.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ordered = sorted(rows, key=lambda row: row.nearest.value)
    figure, axes = plt.subplots(figsize=(_WIDTH, 1.3 + 0.3 * len(ordered)), layout="constrained")
    values = [ratio.value for row in ordered for ratio in row.ratios]
    values += [bound for row in ordered for bound in (row.nearest.low, row.nearest.high)]
    low, high = min(0.8, *values) / 1.25, max(1.25, *values) * 1.25
    axes.axvspan(low, 1, color=theme.lose, alpha=0.07, linewidth=0)
    for place, row in enumerate(ordered):
        _ratio_row(axes, place, row, theme)
    axes.axvline(1, color=theme.ink, linewidth=1.2, zorder=3)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(-0.7, len(ordered) - 0.3)
    axes.set_yticks(range(len(ordered)), [label(row) for row in ordered])
    axes.tick_params(length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks([tick for tick in _TICKS if low <= tick <= high])
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("◀ sparkext slower   |   sparkext faster ▶      (time of the other / time of sparkext, log scale)")
    _mark_legend(figure, rows, theme)
    return figure


def _ratio_row(axes: Axes, place: int, row: Row, theme: Theme) -> None:
    near = row.nearest
    level = not row.won and not row.lost
    shade = theme.win if near.value >= 1 else theme.lose
    axes.barh(place, near.value - 1, left=1, height=0.55, color=shade, alpha=_PALE if level else 0.9, zorder=2)
    axes.errorbar(
        near.value,
        place,
        xerr=[[near.value - near.low], [near.high - near.value]],
        ecolor=theme.ink,
        elinewidth=0.9,
        capsize=2.2,
        capthick=0.9,
        zorder=3.5,
    )
    for ratio in row.ratios:
        axes.plot(
            ratio.value,
            place,
            MARKS.get(ratio.engine, "p"),
            markersize=6.5,
            color=shade if ratio is near else colour(theme, ratio.engine),
            markeredgecolor=theme.surface,
            markeredgewidth=0.7,
            zorder=4 if ratio is near else 3,
        )
    axes.text(
        1.01,
        place,
        f"{_times(near.value)} {near.engine.removesuffix(', default plan')}{', level' if level else ''}",
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=8.5,
        color=theme.muted if level else shade,
        fontweight="bold" if row.lost else "normal",
    )


def _times(value: float) -> str:
    return f"{value:.0f}×" if value >= 10 else f"{value:.2f}×" if value < 1 else f"{value:.1f}×"


def _mark_legend(figure: Figure, rows: Sequence[Row], theme: Theme) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    present = {ratio.engine for row in rows for ratio in row.ratios}
    handles = [
        Line2D([], [], linestyle="", marker=mark, color=colour(theme, name), markersize=6.5, label=name)
        for name, mark in MARKS.items()
        if name in present
    ]
    handles.append(Line2D([], [], color=theme.ink, linewidth=0.9, label="fastest to slowest run"))
    if any(not row.won and not row.lost for row in rows):
        handles.append(Patch(color=theme.win, alpha=_PALE, linewidth=0, label="runs overlap: level"))
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), fontsize=8, handletextpad=0.3)


def growth_plot(panels: Mapping[str, Sequence[Timed]], theme: Theme) -> Figure:
    """A panel per case: seconds over size, both logarithmic; the fitted exponents stand below."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    columns = 2
    lines = (len(panels) + 1) // columns
    figure, grid = plt.subplots(lines, columns, figsize=(_WIDTH, 4.5 * lines), layout="constrained", squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, timed) in zip(grid.flat, panels.items(), strict=False):
        sizes = sorted({each.values["size"] for each in timed})
        for contestant, curves in _curves(timed).items():
            powers = []
            for threads, points in curves.items():
                xs = [point.values["size"] for point in points]
                ys = [median(point.seconds) for point in points]
                first = points[0]
                axes.plot(
                    xs,
                    ys,
                    marker="o",
                    markersize=4,
                    linewidth=2.2 if first.ours else 1.3,
                    linestyle="-" if threads > 1 else "--",
                    color=colour(theme, "sparkext" if first.ours else engine(first)),
                    label="_",
                    zorder=3 if first.ours else 2,
                )
                if len(xs) > 2:
                    powers.append(f"n^{power_law(xs, ys)} {'solid' if threads > 1 else 'dashed'}")
            axes.lines[-1].set_label(f"{contestant}: {', '.join(powers)}")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_title(title)
        most = max(each.key.threads for each in timed)
        axes.set_xlabel(f"{timed[0].values['of']} (dashed: 1 core, solid: {most} cores)")
        axes.set_ylabel("seconds")
        axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.46, -0.16))
    return figure


def _curves(timed: Sequence[Timed]) -> dict[str, dict[int, list[Timed]]]:
    """The points of each contestant and number of cores, most cores last, in the order of their size."""
    found: dict[str, dict[int, list[Timed]]] = {}
    for each in sorted(timed, key=lambda e: (not e.ours, e.contestant, e.key.threads, e.values["size"])):
        found.setdefault(each.contestant, {}).setdefault(each.key.threads, []).append(each)
    return found


def memory_plot(lines: Sequence[Mapping[str, Any]], theme: Theme) -> Figure:
    """A worker's peak over the fan-out of its join, beside what one morsel's whole result would take."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(_WIDTH, 3.0), layout="constrained")
    places = range(len(lines))
    axes.bar(places, [line["peak"] / _MIB for line in lines], width=0.55, color=theme.win, label="highest of a worker")
    axes.axhline(
        lines[0]["baseline"] / _MIB, color=theme.muted, linestyle="--", linewidth=1, label="needed without any match"
    )
    for place, line in enumerate(lines):
        axes.text(place, line["peak"] / _MIB, f"{line['peak'] / _MIB:.0f}", ha="center", va="bottom")
    axes.set_xticks(places, [f"{line['fan_out']:,}" for line in lines])
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("matches of a probe row, 200 bytes of payload each, 4 M result rows in all")
    axes.set_ylabel("MiB")
    axes.set_ylim(0, 1.35 * max(line["peak"] for line in lines) / _MIB)
    axes.legend(fontsize=8.5, loc="upper left", ncols=2)
    return figure
