"""Colours of the report: the same figures in light, in dark, and with names that a page fills in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Theme:
    """Colours by their use. `win` and `lose` are told apart without red and green, too."""

    surface: str
    ink: str
    muted: str
    grid: str
    win: str
    lose: str
    spark: str
    hinted: str
    duckdb: str
    polars: str
    datafusion: str
    acero: str
    comet: str


LIGHT = Theme(
    surface="#ffffff",
    ink="#1f2933",
    muted="#66727f",
    grid="#dde3e9",
    win="#1d6fb8",
    lose="#d9481c",
    spark="#8a6d00",
    hinted="#b58900",
    duckdb="#5b4bb7",
    polars="#007d8a",
    datafusion="#a1387f",
    acero="#5d6b2f",
    comet="#444b54",
)
DARK = Theme(
    surface="#14181d",
    ink="#e4e9ee",
    muted="#9aa6b2",
    grid="#2d353e",
    win="#5aa9ee",
    lose="#ff8257",
    spark="#e0c04c",
    hinted="#f0dc8c",
    duckdb="#a99cf5",
    polars="#4fc4d0",
    datafusion="#e58bc6",
    acero="#b3c46b",
    comet="#c2c8cf",
)
PAGE = Theme(**{name: f"#0000{number:02x}" for number, name in enumerate(asdict(LIGHT), start=1)})
"""Placeholders, which `in_page` replaces by the page's variables."""

ENGINES = {
    "sparkext": "win",
    "Spark, default plan": "spark",
    "Spark, hinted": "hinted",
    "Spark, rewritten": "hinted",
    "Spark 3.5": "muted",
    "DuckDB": "duckdb",
    "Polars": "polars",
    "DataFusion": "datafusion",
    "Acero": "acero",
    "Comet": "comet",
}


def colour(theme: Theme, engine: str) -> str:
    """The colour of an engine's lines and marks."""
    return str(getattr(theme, ENGINES.get(engine, "muted")))


def in_page(svg: str) -> str:
    """Let the page choose the colours of a figure that was drawn with `PAGE`."""
    for name, placeholder in asdict(PAGE).items():
        svg = svg.replace(placeholder, f"var(--{name})")
    return svg


def variables(theme: Theme) -> str:
    """The colours as variables of a style sheet."""
    return " ".join(f"--{name}: {value};" for name, value in asdict(theme).items())


@contextmanager
def drawn_in(theme: Theme) -> Iterator[None]:
    """Let matplotlib draw in these colours."""
    import matplotlib

    settings = {
        "figure.facecolor": theme.surface,
        "axes.facecolor": theme.surface,
        "savefig.facecolor": theme.surface,
        "text.color": theme.ink,
        "axes.labelcolor": theme.muted,
        "axes.titlecolor": theme.ink,
        "axes.edgecolor": theme.grid,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "ytick.labelcolor": theme.ink,
        "grid.color": theme.grid,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "font.size": 9.5,
        "legend.frameon": False,
        "svg.fonttype": "path",
        "svg.hashsalt": "sparkext",
    }
    with matplotlib.rc_context(settings):
        yield
