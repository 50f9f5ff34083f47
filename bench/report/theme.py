"""Colours of the figures, and their files: each is one SVG that follows the reader's light or dark scheme.

Figures are drawn with placeholder colours, which are replaced by variables of the file's style sheet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "surface": ("#ffffff", "#14181d"),
    "ink": ("#1f2933", "#e4e9ee"),
    "muted": ("#66727f", "#9aa6b2"),
    "grid": ("#dde3e9", "#2d353e"),
    "win": ("#1d6fb8", "#5aa9ee"),
    "lose": ("#d9481c", "#ff8257"),
    "spark": ("#8a6d00", "#e0c04c"),
    "hinted": ("#b58900", "#f0dc8c"),
    "duckdb": ("#5b4bb7", "#a99cf5"),
    "polars": ("#007d8a", "#4fc4d0"),
    "datafusion": ("#a1387f", "#e58bc6"),
    "acero": ("#5d6b2f", "#b3c46b"),
    "comet": ("#444b54", "#c2c8cf"),
}
"""Each name's colour in the light and the dark scheme. Colour-blind readers can distinguish `win` and `lose`, too."""

PAINT = {name: f"#0000{number:02x}" for number, name in enumerate(COLOURS, start=1)}
"""The placeholder colour of each name while a figure is drawn."""

CLASS = "sparkext-plot"
"""The CSS class of every figure."""

_CAPTION_WIDTH = 190
_SETTINGS = {
    "figure.facecolor": PAINT["surface"],
    "axes.facecolor": PAINT["surface"],
    "savefig.facecolor": PAINT["surface"],
    "text.color": PAINT["ink"],
    "axes.labelcolor": PAINT["muted"],
    "axes.titlecolor": PAINT["ink"],
    "axes.edgecolor": PAINT["grid"],
    "xtick.color": PAINT["muted"],
    "ytick.color": PAINT["muted"],
    "ytick.labelcolor": PAINT["ink"],
    "grid.color": PAINT["grid"],
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "sparkext",
}


@contextmanager
def drawing() -> Iterator[None]:
    """Configure matplotlib to draw without a screen, with the placeholder colours."""
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(_SETTINGS):
        yield


def save(figure: Figure, path: Path, caption: Sequence[str]) -> None:
    """Write a figure as a self-contained SVG file, with its caption below it."""
    import matplotlib.pyplot as plt

    figure.supxlabel("\n".join(fill(line, _CAPTION_WIDTH) for line in caption), fontsize=6.5, x=0.01, ha="left")
    stream = StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    path.write_text(_coloured(stream.getvalue()), encoding="utf-8")


def _coloured(svg: str) -> str:
    """Replace placeholder colours by variables of a style sheet, and add fallback fonts of the same widths."""
    for name, placeholder in PAINT.items():
        svg = svg.replace(placeholder, f"var(--{name})")
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    svg = svg.replace("<svg ", f'<svg class="{CLASS}" ', 1)
    head = svg.index(">", svg.index("<svg")) + 1
    return svg[:head] + _style() + svg[head:]


def _style() -> str:
    """Return a style sheet that affects only figures, and follows the page's scheme, or else the system's scheme."""
    light, dark = (" ".join(f"--{name}: {pair[scheme]};" for name, pair in COLOURS.items()) for scheme in (0, 1))
    return (
        f"<style>.{CLASS} {{ stroke-linejoin: round; stroke-linecap: butt; {light} }}"
        f" @media (prefers-color-scheme: dark) {{ .{CLASS} {{ {dark} }} }}"
        f' [data-md-color-scheme="default"] .{CLASS} {{ {light} }}'
        f' [data-md-color-scheme="slate"] .{CLASS} {{ {dark} }}</style>'
    )
