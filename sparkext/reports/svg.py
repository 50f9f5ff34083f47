"""Common parts of all drawings of a report: dimensions, colours, text and lines.

A drawing needs no style sheet, because front ends of notebooks drop style sheets, and mark dark mode in different ways.
Text has the colour of the page, and lines have colours that are visible on white and on black.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, LEFT, RIGHT = 900, 78, 852
"""The width of a drawing, and the left and right end of its panels."""

COLORS = ("#2f80d0", "#c8640c", "#14897a", "#b04a9e", "#7a6cd8", "#85841c", "#cc4b4b", "#5b8c3a")
"""The colours of series, in this order."""

GRAY = "#808080"


def assemble_drawing(height: int, label: str, parts: Sequence[str]) -> str:
    """Return the parts as one drawing. `label` describes it to screen readers."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label, quote=True)}"'
        ' style="display:block;width:100%;max-width:1100px;height:auto;font:11px system-ui,sans-serif"'
        f' fill="currentColor">{"".join(parts)}</svg>'
    )


def draw_text(
    x: float, y: float, words: str, anchor: str = "start", color: str = "", weight: int = 400, opacity: float = 1
) -> str:
    """Return a text at a position."""
    attributes = f' fill="{color}"' if color else ""
    attributes += f' font-weight="{weight}"' if weight != 400 else ""
    attributes += f' opacity="{opacity:g}"' if opacity != 1 else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{escape(words)}</text>'


def draw_grid_line(y: float, label: str) -> list[str]:
    """Return a horizontal line with its label."""
    return [
        f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="currentColor" stroke-opacity=".18"/>',
        draw_text(LEFT - 8, y + 4, label, "end", opacity=0.75),
    ]


def choose_decimal_step(span: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten, of which four to ten fit into the span."""
    magnitude = 10.0 ** math.floor(math.log10(span / 4))
    return max(factor * magnitude for factor in (1, 2, 5) if factor * magnitude <= span / 4)
