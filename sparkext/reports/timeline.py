"""The timeline of a run: headroom and budgets over time, as an SVG."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from sparkext.config import REPORT_DECISIONS
from sparkext.reports.svg import (
    COLORS,
    GRAY,
    LEFT,
    RIGHT,
    assemble_drawing,
    choose_decimal_step,
    draw_grid_line,
    draw_text,
)
from sparkext.wording import LIMITS, abbreviate_number, format_bytes, format_count

if TYPE_CHECKING:
    from sparkext.reports.pipeline_run import JoinReport, PipelineRun

_HEADROOM_PANEL, _BUDGET_PANEL = (34, 140), (198, 328)
_HEIGHT = 364
_COLUMNS = 172  # points per line: one every 4.5 pixels
_LABEL_HEIGHT = 13
_FEW = 24


@dataclass(frozen=True)
class _Column:
    """The values within one column of pixels: their mean time, minimum, median and maximum."""

    seconds: float
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class _Panel:
    """An area of the page with one scale: `height` maps a value to its share of the panel's height."""

    top: int
    bottom: int
    span: float
    height: Callable[[float], float]

    def x(self, seconds: float) -> float:
        return LEFT + (RIGHT - LEFT) * seconds / self.span

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * self.height(value)


def draw_timeline(report: PipelineRun) -> str:
    """Return the timeline, or a sentence with the reason why there is none."""
    start = report.started
    headroom: list[tuple[float, float]] = []
    budgets: list[list[tuple[float, float]]] = [[] for _ in report.joins]
    for task in report.tasks:
        for at, operator, free, budget, _ in task.decisions:
            budgets[operator].append((at - start, budget))
            if free is not None:
                headroom.append((at - start, free))
    if not any(budgets):
        return f"<p>No timeline: the tasks recorded no decisions ({REPORT_DECISIONS.name}).</p>"
    span = max(report.elapsed_seconds, *(at for points in budgets for at, _ in points), 1e-3)
    headroom_columns, budget_columns = (
        _aggregate_columns(headroom, span),
        [_aggregate_columns(points, span) for points in budgets],
    )
    parts = [
        *_draw_headroom_panel(headroom_columns, span, report.joins),
        *_draw_budget_panel(budget_columns, span, report.joins),
        *_draw_time_axis(span, start),
    ]
    return assemble_drawing(_HEIGHT, "Free memory and row budgets over the run", parts)


def _aggregate_columns(points: list[tuple[float, float]], span: float) -> list[_Column]:
    """Aggregate points in the same column of pixels. At most `_COLUMNS` points are returned unchanged."""
    by_column: dict[int, list[tuple[float, float]]] = {}
    for number, point in enumerate(sorted(points)):
        column = number if len(points) <= _COLUMNS else int(max(point[0], 0) / span * (_COLUMNS - 1))
        by_column.setdefault(column, []).append(point)
    columns = []
    for _, inside in sorted(by_column.items()):
        values = sorted(value for _, value in inside)
        seconds = sum(at for at, _ in inside) / len(inside)
        columns.append(_Column(max(seconds, 0), values[0], values[len(values) // 2], values[-1]))
    return columns


def _draw_headroom_panel(columns: list[_Column], span: float, joins: Sequence[JoinReport]) -> list[str]:
    top, bottom = _HEADROOM_PANEL
    limited = [join for join in joins if join.lowest_headroom is not None]
    if not columns or not limited:
        return [draw_text(LEFT, top, "Free memory is unknown: neither a limit nor /proc/meminfo could be read.")]
    tightest = min(limited, key=lambda join: join.lowest_headroom or 0)
    limit = LIMITS.get(tightest.headroom_limit or "", tightest.headroom_limit or "")
    step, count = _choose_byte_steps(max(column.high for column in columns))
    panel = _Panel(top, bottom, span, lambda value: value / (step * count))
    lowest = min(columns, key=lambda column: column.low)
    least = format_bytes(tightest.lowest_headroom or 0)
    title = f"Free memory (headroom): never below {least}; the tightest limit was {limit}"
    parts = [draw_text(LEFT - 70, top - 16, title, weight=600)]
    for number in range(count + 1):
        parts += draw_grid_line(
            panel.y(step * number), format_bytes(step * number).replace(".0 ", " ") if number else "0"
        )
    parts.append(_draw_band(panel, columns, GRAY))
    parts.append(_draw_line(panel, [(column.seconds, column.low) for column in columns], GRAY, "free memory"))
    if format_bytes(lowest.low) == least:  # otherwise the minimum was at a decision that was not recorded
        x, y = panel.x(lowest.seconds), panel.y(lowest.low)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{GRAY}"/>')
        # The label fits below the lowest point, because the curve is nowhere lower.
        parts.append(draw_text(min(max(x, LEFT + 40), RIGHT - 40), y + 17, f"lowest {least}", "middle"))
    return parts


def _draw_budget_panel(operators: list[list[_Column]], span: float, joins: Sequence[JoinReport]) -> list[str]:
    top, bottom = _BUDGET_PANEL
    all_columns = [column for columns in operators for column in columns]
    most = max(column.high for column in all_columns) * 1.2
    least = min(min(column.low for column in all_columns) / 1.2, most / 4)
    panel = _Panel(top, bottom, span, lambda value: math.log(value / least) / math.log(most / least))
    parts = [
        draw_text(
            LEFT - 70, top - 16, "Budget: the limit of the rows that an operator produces in its next call", weight=600
        )
    ]
    for tick in _choose_log_ticks(least, most):
        parts += draw_grid_line(panel.y(tick), abbreviate_number(tick))
    ends = []
    for number, (columns, join) in enumerate(zip(operators, joins, strict=True)):
        if not columns:
            continue
        color = color_of(number)
        named = f"{number + 1}: {join.operator}, {format_count(join.morsels, 'budget')}"
        parts.append(_draw_band(panel, columns, color))
        parts.append(_draw_line(panel, [(column.seconds, column.middle) for column in columns], color, named))
        ends.append((panel.y(columns[-1].middle), number))
    for y, number in _spread_labels(ends, top, bottom):
        parts.append(draw_text(RIGHT + 12, y + 4, str(number + 1), color=color_of(number), weight=700))
    return parts


def color_of(operator: int) -> str:
    """Return the colour of an operator's line."""
    return COLORS[operator % len(COLORS)]


def _spread_labels(ends: list[tuple[float, int]], top: float, bottom: float) -> list[tuple[float, int]]:
    """Move overlapping labels apart, within the panel if they fit."""
    labels: list[tuple[float, int]] = []
    for y, number in sorted(ends):
        labels.append((max(y, labels[-1][0] + _LABEL_HEIGHT) if labels else y, number))
    over = max(0.0, labels[-1][0] - bottom)
    return [
        (max(y - over, top + number_above * _LABEL_HEIGHT), number) for number_above, (y, number) in enumerate(labels)
    ]


def _draw_time_axis(span: float, start: float) -> list[str]:
    bottom = _BUDGET_PANEL[1]
    step = choose_decimal_step(span)
    parts = []
    for number in range(int(span / step) + 1):
        x = LEFT + (RIGHT - LEFT) * number * step / span
        parts.append(f'<path d="M{x:.1f} {bottom}v4" stroke="currentColor" stroke-opacity=".5"/>')
        parts.append(draw_text(x, bottom + 17, f"{number * step:g} s", "middle", opacity=0.75))
    began = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(start))
    parts.append(draw_text(RIGHT, bottom + 32, f"since {began}", "end", opacity=0.75))
    return parts


def _choose_log_ticks(least: float, most: float) -> list[float]:
    """Return the powers of ten between two values, and 2 and 5 times these if the range is less than 50-fold."""
    powers = [10.0**power for power in range(math.floor(math.log10(least)), math.floor(math.log10(most)) + 1)]
    factors = (1, 2, 5) if most / least < 50 else (1,)
    return [factor * power for power in powers for factor in factors if least <= factor * power <= most]


def _choose_byte_steps(highest: float) -> tuple[float, int]:
    """Return a power of two as the step of an axis, and the number of steps that reach the value, at most four."""
    step = 2.0 ** math.ceil(math.log2(max(highest, 4) / 4))
    return step, math.ceil(max(highest, 1) / step)


def _draw_band(panel: _Panel, columns: list[_Column], color: str) -> str:
    """Return the area between the minimum and the maximum of each column."""
    if len(columns) < 2 or all(column.low == column.high for column in columns):
        return ""
    above = [f"{panel.x(column.seconds):.1f} {panel.y(column.high):.1f}" for column in columns]
    below = [f"{panel.x(column.seconds):.1f} {panel.y(column.low):.1f}" for column in reversed(columns)]
    return f'<path d="M{"L".join([*above, *below])}Z" fill="{color}" fill-opacity=".22"/>'


def _draw_line(panel: _Panel, points: list[tuple[float, float]], color: str, named: str) -> str:
    """Return a line, with a dot for each point if there are at most `_FEW` points."""
    points_on_page = [(panel.x(seconds), panel.y(value)) for seconds, value in points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points_on_page)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>' for x, y in points_on_page)
    return (
        f'<g><title>{escape(named)}</title><path d="M{path}" fill="none" stroke="{color}" stroke-width="1.8"'
        f' stroke-linejoin="round"/>{dots if len(points) <= _FEW else ""}</g>'
    )
