"""What all drawings of a report share: their measures, their text and lines.

A drawing stands in a page by itself. Text has the page's colour and lines have shades that stand out from white and
from black alike, so that it needs no style sheet: front ends of notebooks drop those, and differ in how they say that
they are dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, LEFT, RIGHT = 900, 78, 852
"""Of a drawing, and where its panels begin and end."""

COLORS = ("#2f80d0", "#c8640c", "#14897a", "#b04a9e", "#7a6cd8", "#85841c", "#cc4b4b", "#5b8c3a")
"""One per thing drawn, in turn."""

GRAY = "#808080"


def drawing(height: int, label: str, parts: Sequence[str]) -> str:
    """The parts as one drawing. `label`: what it shows, for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label, quote=True)}"'
        ' style="display:block;width:100%;max-width:1100px;height:auto;font:11px system-ui,sans-serif"'
        f' fill="currentColor">{"".join(parts)}</svg>'
    )


def text(
    x: float, y: float, words: str, anchor: str = "start", color: str = "", weight: int = 400, opacity: float = 1
) -> str:
    """Words at a place."""
    look = f' fill="{color}"' if color else ""
    look += f' font-weight="{weight}"' if weight != 400 else ""
    look += f' opacity="{opacity:g}"' if opacity != 1 else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{look}>{escape(words)}</text>'


def grid_line(y: float, label: str) -> list[str]:
    """A line across, and what it stands for."""
    return [
        f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="currentColor" stroke-opacity=".18"/>',
        text(LEFT - 8, y + 4, label, "end", opacity=0.75),
    ]


def decimal_step(span: float) -> float:
    """A round number, of which four to ten fit into the span."""
    magnitude = 10.0 ** math.floor(math.log10(span / 4))
    return max(factor * magnitude for factor in (1, 2, 5) if factor * magnitude <= span / 4)
