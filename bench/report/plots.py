"""The figures. Each answers one question, and includes the losing cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.report.fit import power_law
from bench.report.ratios import COMET, HINTED, REWRITTEN, SPARK, Row, engine
from bench.report.result_files import Timed
from bench.report.theme import PAINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENGINES = {
    "sparkext": ("win", "o"),
    SPARK: ("spark", "o"),
    HINTED: ("hinted", "D"),
    REWRITTEN: ("hinted", ">"),
    "Spark 3.5": ("muted", "X"),
    "DuckDB": ("duckdb", "s"),
    "Polars": ("polars", "^"),
    "DataFusion": ("datafusion", "v"),
    "Acero": ("acero", "P"),
    COMET: ("comet", "h"),
}
"""Colour and mark of each engine. Comet's name has a version as its suffix."""

_OTHER = ("muted", "p")
_TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_WIDTH = 9.6
_PALE = 0.4
_MIB = 2**20


def colour(name: str) -> str:
    """Return the colour of an engine's lines and marks."""
    return PAINT[_look(name)[0]]


def _look(name: str) -> tuple[str, str]:
    return ENGINES.get(_without_version(name), _OTHER)


def _without_version(name: str) -> str:
    return COMET if name.startswith(COMET) else name


def ratio_plot(rows: Sequence[Row], label: Callable[[Row], str]) -> Figure:
    """Draw a bar per case from 1 to the fastest competitor's ratio, and a mark for every other competitor's.

    This package is faster if a ratio is above 1. A whisker shows the range of single runs of both. The bar is pale if
    runs overlap, so that there is no clear win or loss.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ordered = sorted(rows, key=lambda row: row.nearest.value)
    figure, axes = plt.subplots(figsize=(_WIDTH, 1.3 + 0.3 * len(ordered)), layout="constrained")
    values = [ratio.value for row in ordered for ratio in row.ratios]
    values += [bound for row in ordered for bound in (row.nearest.low, row.nearest.high)]
    low, high = min(0.8, *values) / 1.25, max(1.25, *values) * 1.25
    axes.axvspan(low, 1, color=PAINT["lose"], alpha=0.07, linewidth=0)
    for place, row in enumerate(ordered):
        _ratio_row(axes, place, row)
    axes.axvline(1, color=PAINT["ink"], linewidth=1.2, zorder=3)
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
    _mark_legend(figure, rows)
    return figure


def _ratio_row(axes: Axes, place: int, row: Row) -> None:
    near = row.nearest
    level = not row.won and not row.lost
    shade = PAINT["win"] if near.value >= 1 else PAINT["lose"]
    axes.barh(place, near.value - 1, left=1, height=0.55, color=shade, alpha=_PALE if level else 0.9, zorder=2)
    axes.errorbar(
        near.value,
        place,
        xerr=[[near.value - near.low], [near.high - near.value]],
        ecolor=PAINT["ink"],
        elinewidth=0.9,
        capsize=2.2,
        capthick=0.9,
        zorder=3.5,
    )
    for ratio in row.ratios:
        axes.plot(
            ratio.value,
            place,
            _look(ratio.engine)[1],
            markersize=6.5,
            color=shade if ratio is near else colour(ratio.engine),
            markeredgecolor=PAINT["surface"],
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
        color=PAINT["muted"] if level else shade,
        fontweight="bold" if row.lost else "normal",
    )


def _times(value: float) -> str:
    return f"{value:.0f}×" if value >= 10 else f"{value:.2f}×" if value < 1 else f"{value:.1f}×"


def _mark_legend(figure: Figure, rows: Sequence[Row]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    present = {ratio.engine for row in rows for ratio in row.ratios}
    order = [name for each in ENGINES for name in present if _without_version(name) == each]
    handles = [
        Line2D([], [], linestyle="", marker=_look(name)[1], color=colour(name), markersize=6.5, label=name)
        for name in order
    ]
    handles.append(Line2D([], [], color=PAINT["ink"], linewidth=0.9, label="fastest to slowest run"))
    if any(not row.won and not row.lost for row in rows):
        handles.append(Patch(color=PAINT["win"], alpha=_PALE, linewidth=0, label="runs overlap: level"))
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(
            handles=handles, loc="outside upper left", ncols=columns, fontsize=8, handletextpad=0.3, columnspacing=1.2
        )
        if legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def growth_plot(panels: Mapping[str, Sequence[Timed]]) -> Figure:
    """Draw a panel per case: seconds over size, both logarithmic, with the fitted exponents in the legend."""
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
                    color=colour("sparkext" if first.ours else engine(first)),
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
    """Return the points of each contestant and number of cores, fewest cores first, by ascending size."""
    found: dict[str, dict[int, list[Timed]]] = {}
    for each in sorted(timed, key=lambda e: (not e.ours, e.contestant, e.key.threads, e.values["size"])):
        found.setdefault(each.contestant, {}).setdefault(each.key.threads, []).append(each)
    return found


def memory_plot(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw a worker's peak memory over the fan-out of its join, and the memory that is needed without matches."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(_WIDTH, 3.0), layout="constrained")
    places = range(len(lines))
    axes.bar(
        places, [line["peak"] / _MIB for line in lines], width=0.55, color=PAINT["win"], label="highest of a worker"
    )
    axes.axhline(
        lines[0]["baseline"] / _MIB, color=PAINT["muted"], linestyle="--", linewidth=1, label="needed without any match"
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


_FIRST_BATCHES = 4
"""Batches that are left out, because they compile and fill the state."""


def redraw_plot(line: Mapping[str, Any]) -> Figure:
    """Draw batches of a stream in which one key grows and shrinks: time above, merged and moved rows below.

    `line` has, for each batch: `milliseconds`, `merged_rows`, `moved_rows`, `tables` (new tables, used from the next
    batch on), and `share`, the share of rows with the growing key. The first four batches are left out.
    """
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(_WIDTH, 4.6), sharex=True, layout="constrained")
    batches = range(_FIRST_BATCHES, len(line["milliseconds"]))
    seconds = [each / 1e3 for each in line["milliseconds"][_FIRST_BATCHES:]]
    above.bar(batches, seconds, width=0.7, color=PAINT["win"])
    above.set_ylabel("seconds")
    for name, colour, width in (("merged", "win", 0.7), ("moved", "lose", 0.35)):
        rows = [each / 1e3 for each in line[f"{name}_rows"][_FIRST_BATCHES:]]
        below.bar(batches, rows, width=width, color=PAINT[colour], label=name)
    below.set_ylabel("thousand rows")
    large = [number for number in batches if line["share"][number] > 0]
    for axes in (above, below):
        for number in batches:
            if line["tables"][number]:
                axes.axvline(number + 0.5, color=PAINT["ink"], linewidth=0.9, linestyle=":")
        if large:
            axes.axvspan(large[0] - 0.5, large[-1] + 0.5, color=PAINT["muted"], alpha=0.15)
        axes.grid(axis="x", visible=False)
        axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    below.legend(fontsize=8.5, loc="upper left", ncols=2)
    below.xaxis.get_major_locator().set_params(integer=True)
    share = f"; shaded: one device has {max(line['share']):.0%} of all rows" if large else ""
    below.set_xlabel(f"batch; dotted: another routing table from the next one on{share}")
    return figure


_BUDGET_TITLES = {
    "controller.follow.group": "In a control group",
    "controller.follow.address-space": "In a limited address space",
}
_OPERATORS = ("first join", "second join", "third join", "payload")
_MOST_POINTS = 120


def budget_plot(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw a column for each run: limit, used and free memory above, the budgets of every operator below.

    A line has `events` (time, name), `samples` (time, limit, bytes in use) and `decisions` (time, operator, headroom,
    budget, rows produced). All times are of one clock.
    """
    import matplotlib.pyplot as plt

    widths = [len(line["events"]) for line in lines]
    figure, axes = plt.subplots(
        2, len(lines), figsize=(9.6, 6), sharex="col", squeeze=False, width_ratios=widths, layout="constrained"
    )
    for line, above, below in zip(lines, *axes, strict=True):
        _memory(above, line)
        _budgets(below, line)
        above.set_title(_BUDGET_TITLES.get(line["case"], line["case"]))
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


def _memory(axes: Axes, line: Mapping[str, Any]) -> None:
    start = line["events"][0][0]
    times = [time - start for time, *_ in line["samples"]]
    axes.step(times, _mib(limit for _, limit, _ in line["samples"]), where="post", color=PAINT["ink"], label="limit")
    axes.plot(times, _mib(used for *_, used in line["samples"]), color=PAINT["lose"], label="in use")
    decided = _thinned([each for each in line["decisions"] if each[2] is not None])
    free = _mib(headroom for _, _, headroom, *_ in decided)
    axes.scatter([each[0] - start for each in decided], free, s=3, color=PAINT["win"], label="free, as decided by")
    axes.set_ylim(0, 1.18 * max(limit for _, limit, _ in line["samples"]) / _MIB)
    _mark(axes, line, named=True)


def _budgets(axes: Axes, line: Mapping[str, Any]) -> None:
    start = line["events"][0][0]
    colours = (PAINT["muted"], PAINT["polars"], PAINT["spark"], PAINT["win"])
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
    _mark(axes, line, named=False)


def _mark(axes: Axes, line: Mapping[str, Any], named: bool) -> None:
    start = line["events"][0][0]
    for number, (time, name) in enumerate(line["events"][1:]):
        axes.axvline(time - start, color=PAINT["ink"], linewidth=0.9, linestyle=":")
        if named:
            axes.annotate(
                name,
                (time - start, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -10 - 11 * (number % 2)),  # alternates between two lines, so that neighbours do not overlap
                textcoords="offset points",
                fontsize=7.5,
            )


def _thinned(decisions: Sequence[Any]) -> Sequence[Any]:
    """Return an even sample of the decisions, of less than twice `_MOST_POINTS`."""
    return decisions[:: max(1, len(decisions) // _MOST_POINTS)]


def _mib(sizes: Iterable[int]) -> list[float]:
    return [size / _MIB for size in sizes]


DELIVERIES = {
    "adaptive": "win",
    "morsel": "lose",
    "block": "acero",
    "tuple": "datafusion",
    "materialize": "muted",
    "materialize_parallel": "duckdb",
}
"""The delivery modes that the study compares, each with its colour."""

_THREADS = {
    ("cooperative", 1): ("one thread", "muted"),
    ("cooperative", 2): ("two, cooperative", "win"),
    ("independent", 2): ("two, independent", "lose"),
}
Run = Mapping[str, Any]


def study_rates(runs: Sequence[Run]) -> Figure:
    """Draw a panel per memory limit: result rows per second of each delivery mode by matches per row; ✕ if killed."""
    figure, panels = _study_panels(runs, "limit", _limit_named, largest_first=True)
    figure.supylabel("million result rows a second (✕: killed)", fontsize=9.5)
    for axes, each in panels:
        fan_outs = _distinct(each, "fan_out")
        for place, (delivery, paint) in enumerate(DELIVERIES.items()):
            rates = [_rate(_only(each, delivery=delivery, fan_out=fan_out)) for fan_out in fan_outs]
            died = [x for x, rate in enumerate(rates) if rate is None]
            values = [float("nan") if rate is None else rate for rate in rates]
            axes.plot(values, marker="o", color=PAINT[paint], label=delivery.replace("_", " "))
            axes.scatter(died, [0.003 * 1.6**place] * len(died), marker="X", s=70, color=PAINT[paint])
        axes.set_yscale("log")
    return _with_legend(figure)


def study_peaks(runs: Sequence[Run]) -> Figure:
    """Draw a panel per memory limit: the peak memory of each delivery mode; pale and crossed if it was killed."""
    figure, panels = _study_panels(runs, "limit", _limit_named, largest_first=True)
    figure.supylabel("MiB at the highest, file pages included", fontsize=9.5)
    for axes, each in panels:
        for place, (delivery, paint) in enumerate(DELIVERIES.items()):
            own = [_only(each, delivery=delivery, fan_out=fan_out) for fan_out in _distinct(each, "fan_out")]
            peaks = [max((run["group_peak"] / _MIB for run in some if "group_peak" in run), default=0) for some in own]
            xs = [x + (place - 2.5) * 0.14 for x in range(len(own))]
            bars = axes.bar(xs, peaks, 0.13, color=PAINT[paint], label=delivery.replace("_", " "))
            for bar, x, peak, some in zip(bars, xs, peaks, own, strict=True):
                if _rate(some) is None:
                    bar.set_alpha(_PALE)
                    axes.text(x, peak, "✕", ha="center", va="bottom", color=PAINT[paint])
        if (limit := each[0]["limit"]) is not None:
            axes.axhline(limit / _MIB, color=PAINT["ink"], linewidth=1, linestyle="--")
    return _with_legend(figure)


def study_threads(runs: Sequence[Run]) -> Figure:
    """Draw a panel per index size: result rows per second of one and two threads, by matches per row."""
    figure, panels = _study_panels(runs, "build_rows", lambda rows: f"{rows:,} build rows a join")
    figure.supylabel("million result rows a second", fontsize=9.5)
    for axes, each in panels:
        for place, ((threads, cores), (label, paint)) in enumerate(_THREADS.items()):
            own = [_only(each, threads=threads, cores=cores, fan_out=fan_out) for fan_out in _distinct(each, "fan_out")]
            rates = [_rate(some) or 0 for some in own]
            axes.bar([x + (place - 1) * 0.27 for x in range(len(own))], rates, 0.25, color=PAINT[paint], label=label)
    return _with_legend(figure)


def _study_panels(
    runs: Sequence[Run], by: str, named: Callable[[Any], str], largest_first: bool = False
) -> tuple[Figure, list[tuple[Axes, list[Run]]]]:
    """Return a figure with a panel per value of `by`, matches per row on the x axis, and the runs of each panel."""
    import matplotlib.pyplot as plt

    values = _distinct(runs, by)[:: -1 if largest_first else 1]
    figure, grid = plt.subplots(1, len(values), figsize=(14, 4.4), sharey=True, squeeze=False, layout="constrained")
    panels = [(axes, _only(runs, **{by: value})) for axes, value in zip(grid.flat, values, strict=True)]
    for (axes, each), value in zip(panels, values, strict=True):
        fan_outs = _distinct(each, "fan_out")
        axes.set_xticks(range(len(fan_outs)), [f"{fan_out:,}" for fan_out in fan_outs])
        axes.grid(axis="x", visible=False)
        axes.set_title(named(value))
        axes.set_xlabel("matches a probe row")
    return figure, panels


def _with_legend(figure: Figure) -> Figure:
    """Add one legend for all panels."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels))
    return figure


def _distinct(runs: Sequence[Run], name: str) -> list[Any]:
    """Return the values of a field in ascending order; None (no limit) is the largest."""
    return sorted({run[name] for run in runs}, key=lambda value: float("inf") if value is None else value)


def _only(runs: Sequence[Run], **fields: Any) -> list[Run]:
    return [run for run in runs if all(run[name] == value for name, value in fields.items())]


def _rate(runs: Sequence[Run]) -> float | None:
    """Return the median of million result rows per second; None unless all runs finished."""
    if not runs or any(run["outcome"] != "finished" for run in runs):
        return None
    return median(run["rows"] / run["seconds"] / 1e6 for run in runs)


def _limit_named(limit: int | None) -> str:
    return "no limit" if limit is None else f"limit {limit >> 20} MiB"
