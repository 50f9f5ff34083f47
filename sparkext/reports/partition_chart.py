"""The partition loads of a partitioned join as an SVG, the heaviest first: by hash, as planned, and as they ran.

If rows were streamed to partitions, the chart shows the first interval, the last interval and the whole run instead. A
second chart shows the skew of each interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from sparkext.reports.partition_loads import PartitionLoads

_TOP, _BOTTOM, _HEIGHT = 34, 150, 178
_LEGEND = 150  # pixels per name


def draw_partition_loads(loads: PartitionLoads) -> str:
    """Return the charts, or an empty text for a single partition."""
    series = (
        ("first interval" if loads.skews else "by hash", loads.by_hash, GRAY),
        ("last interval" if loads.skews else "as planned", loads.planned, COLORS[0]),
        ("as executed", loads.took, COLORS[1]),
    )
    most = max(max(values, default=0.0) for _, values, _ in series)
    if len(loads.planned) < 2 or most <= 0:
        return ""
    parts = _draw_axis(f"Seconds of each partition, the heaviest first: {loads}", most, " s")
    for number, (name, values, color) in enumerate(series):
        parts.append(_draw_steps(sorted(values, reverse=True), most, color, name))
        parts.append(draw_text(LEFT + number * _LEGEND, _BOTTOM + 20, name, color=color, weight=700))
    return assemble_drawing(_HEIGHT, "Loads of the partitions", parts) + _draw_trajectory(loads.skews)


def _draw_trajectory(skews: Sequence[float]) -> str:
    """Return a chart with the skew of each interval, or an empty text for fewer than two intervals."""
    most = max(skews, default=0.0)
    if len(skews) < 2 or most <= 0:
        return ""
    parts = _draw_axis("Skew of the partitions in each interval: (max - min) / mean", most)
    parts.append(_draw_steps(skews, most, COLORS[0], "skew"))
    return assemble_drawing(_HEIGHT, "Skew of the partitions", parts)


def _draw_axis(title: str, most: float, unit: str = "") -> list[str]:
    """Return the title, and grid lines up to the largest value."""
    step = choose_decimal_step(most)
    parts = [draw_text(LEFT - 70, _TOP - 16, title, weight=600)]
    for number in range(int(most / step) + 1):
        parts += draw_grid_line(_compute_height(number * step, most), f"{number * step:g}{unit}")
    return parts


def _compute_height(value: float, most: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * value / most


def _draw_steps(values: Sequence[float], most: float, color: str, name: str) -> str:
    """Return a line with a step for each value, all of the same width."""
    if not values:
        return ""
    width = (RIGHT - LEFT) / len(values)
    steps = [
        f"{_compute_height(value, most):.1f}H{LEFT + width * (number + 1):.1f}" for number, value in enumerate(values)
    ]
    path = f"M{LEFT} {'V'.join(steps)}"
    return f'<g><title>{escape(name)}</title><path d="{path}" fill="none" stroke="{color}" stroke-width="1.8"/></g>'
