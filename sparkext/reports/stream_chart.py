"""The operators of a streaming query as HTML, for notebooks: tables, and charts of the time and state of each batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from sparkext.reports.stream_batches import Batch
from sparkext.reports.svg import COLORS, LEFT, RIGHT, assemble_drawing, choose_decimal_step, draw_grid_line, draw_text
from sparkext.wording import abbreviate_number

_TOP, _HEIGHT, _GAP = 34, 96, 44


def render_stream_html(tables: str, operators: Iterable[str], batches: Sequence[Batch]) -> str:
    """Return `tables`, a text, and a chart of each operator as one element of a page."""
    charts = "".join(_draw_operator(batches, name) for name in operators)
    table = f'<pre style="font:12px ui-monospace,monospace;background:none;margin:0 0 10px">{escape(tables)}</pre>'
    return f'<div style="max-width:1200px">{table}{charts}</div>'


def _draw_operator(batches: Sequence[Batch], name: str) -> str:
    """Return a chart of the time of each batch, and of the rows of state after it; an empty text for a single batch."""
    batches = [batch for batch in batches if name in batch.operators]
    if len(batches) < 2:
        return ""
    state = [float(batch.operators[name].state_rows) for batch in batches]
    panels = ((f"{name}: seconds a batch", [batch.seconds for batch in batches]), ("rows of state", state))
    parts, top = [], _TOP
    for number, (title, values) in enumerate(panels):
        parts += _draw_panel(title, values, top, COLORS[number])
        top += _HEIGHT + _GAP
    ends = (batches[0].number, "start", LEFT), (batches[-1].number, "end", RIGHT)
    parts += [draw_text(at, top - _GAP + 16, f"batch {batch}", anchor) for batch, anchor, at in ends]
    return assemble_drawing(top - _GAP + 24, f"Batches of {name}", parts)


def _draw_panel(title: str, values: Sequence[float], top: float, color: str) -> list[str]:
    most = max(values) or 1.0
    step, bottom = choose_decimal_step(most), top + _HEIGHT
    parts = [draw_text(LEFT - 70, top - 12, title, weight=600)]
    for number in range(int(most / step) + 1):
        parts += draw_grid_line(bottom - _HEIGHT * number * step / most, abbreviate_number(number * step))
    step_width = (RIGHT - LEFT) / (len(values) - 1)
    points = " ".join(
        f"{LEFT + step_width * at:.1f},{bottom - _HEIGHT * value / most:.1f}" for at, value in enumerate(values)
    )
    return [*parts, f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.8"/>']
