"""`python -m bench report [FILE …]`: one page that holds everything, and its figures as pictures, from result files.

Without files: those in bench/results that have been named, not the `run-…` of this machine. Where two files have the
same table, the later one's counts; the page names the machine and the versions of each.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from bench.budget_plot import BUDGETS, budget_plot
from bench.names import NAMES, QUERIES, is_scaled
from bench.plots import Plot, growth_plot, memory_plot, ratio_plot
from bench.ratios import Row, compared, within_spark, without_spark
from bench.report_page import caption, page
from bench.result_files import TINY, Key, Results, Timed, merged, read
from bench.theme import DARK, LIGHT, PAGE, drawn_in, in_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
_CAPTION_WIDTH = 190
_GROWTH = {
    "scaling.data": "In memory: three joins, more data",
    "scaling.joins": "In memory: more joins",
    "scaling.scan-data": "From Parquet in Spark: three joins, more data",
    "scaling.scan-joins": "From Parquet in Spark: more joins",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and the pictures; 2 if a file is none of the harness."""
    parser = argparse.ArgumentParser(
        prog="bench report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="result files, the latest last")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "plots", help="folder (default: docs/plots)")
    given = parser.parse_args(argv)
    paths = given.files or named_files(ROOT / "bench" / "results")
    try:
        files = sorted((read(path) for path in paths), key=lambda results: results.facts.get("date", ""))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    files = [results for results in files if results.timed or results.others]
    tiny = [results.name for results in files if results.facts.get("data") == TINY]
    if tiny:
        print(f"{', '.join(tiny)}: times of quick runs mean nothing", file=sys.stderr)
    if not files:
        print("there are no results to draw", file=sys.stderr)
    if tiny or not files:
        return 2
    write(files, given.out)
    return 0


def named_files(folder: Path) -> list[Path]:
    """The result files that someone has given a name."""
    return [path for path in sorted(folder.glob("*.jsonl")) if not path.name.startswith("run-")]


def write(files: Sequence[Results], folder: Path) -> None:
    """Draw all figures that the results have data for, and the page around them."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    tables = merged(files)
    figures = {}
    for plot in plots(tables, [line for results in files for line in results.others]):
        said = "\n".join(fill(line, _CAPTION_WIDTH) for line in caption(files, plot.results))
        for theme, suffix in ((LIGHT, ""), (DARK, "-dark")):
            with drawn_in(theme):
                _save(plot.draw(theme), folder / f"{plot.name}{suffix}.png", said)
        with drawn_in(PAGE):
            figures[plot] = _svg(plot.draw(PAGE))
    path = folder / "report.html"
    path.write_text(page(files, tables, figures))
    print(path)


def plots(tables: Mapping[Key, Sequence[Timed]], others: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """The figures in the order of the page."""
    found = compared(tables)
    beside = [row for row in found if row.key.case not in QUERIES]
    queries = [row for row in _largest(found) if row.key.case in QUERIES and not row.keeps_indexes]
    made = [
        _ratios(
            "against-spark",
            "Against Spark's own plans",
            "Same files, same cores, same sink. Each line is one way of using sparkext; the bar ends at the fastest"
            " plan that Spark (or an accelerator for it) has for the same rows. “Hinted” is the fastest of the hints"
            " that were tried, “rewritten” another query for the same rows. What is timed includes reading, publishing"
            " and indexing the build sides, but for lines that say “cached”.",
            within_spark(beside),
        ),
        _ratios(
            "queries",
            "Whole queries against Spark's own plans",
            "TPC-H and TPC-DS queries of which auto mode plans a join, all indexes built anew, at the largest scale"
            " factor in the files. “Hinted” is the faster of two settings: broadcast joins of larger sides, or shuffled"
            " hash joins. Queries that have the same plan with the mode off are not timed.",
            within_spark(queries),
        ),
        _ratios(
            "against-engines",
            "Against other engines",
            "DuckDB, Polars, DataFusion and Acero run without Spark, sparkext within it. Lines that begin with “in"
            " memory” or “from files” have no Spark on either side: all join the same tables in one process.",
            without_spark(beside),
        ),
        _ratios(
            "queries-engines",
            "Whole queries against other engines",
            "The same queries, in engines that run without Spark and need none of its planning.",
            without_spark(queries),
        ),
    ]
    growing = {
        title: timed
        for case, title in _GROWTH.items()
        if (timed := [each for key, table in tables.items() if key.case == case for each in table if _is_drawn(each)])
    }
    if growing:
        made.append(
            Plot(
                "growth",
                "How cost grows",
                "Seconds over size, both logarithmic. n^1.00 is cost in proportion to size; less means that a fixed"
                " cost still counts.",
                lambda theme: growth_plot(growing, theme),
                tuple(each.key for timed in growing.values() for each in timed),
            )
        )
    following = {line["case"]: line for line in others if line.get("case", "").startswith(BUDGETS)}
    if following:
        made.append(
            Plot(
                "budgets",
                "How the budgets followed the memory",
                "An exploding join whose memory limit is cut and restored while it runs, and whose neighbour takes"
                " memory and returns it: what was free, and how many rows an operator was allowed to make.",
                lambda theme: budget_plot(list(following.values()), theme),
                tuple(following),
            )
        )
    peaks = [line for line in others if line.get("case") == "memory.fan-out"]
    if peaks:
        made.append(
            Plot(
                "memory",
                "What exploding joins take",
                "The highest resident memory of one worker. Output sizes are chosen from what is free, so it does not"
                " grow with the number of matches.",
                lambda theme: memory_plot(peaks[-4:], theme),
                ("memory.fan-out",),
            )
        )
    return [plot for plot in made if plot is not None]


def _is_drawn(timed: Timed) -> bool:
    """Growth is that of the whole work: not of floors, and not of probing indexes that are there already."""
    return not timed.floor and "cached" not in timed.contestant


def _ratios(name: str, title: str, text: str, found: Sequence[Row]) -> Plot | None:
    if not found:
        return None
    label = labels([row.key for row in found])
    return Plot(name, title, text, lambda theme: ratio_plot(found, label, theme), tuple(row.key for row in found))


def _largest(found: Sequence[Row]) -> list[Row]:
    """The rows of the largest scale factor of each case."""
    most: dict[str, float] = {}
    for row in found:
        most[row.key.case] = max(row.key.scale_factor, most.get(row.key.case, 0.0))
    return [row for row in found if row.key.scale_factor == most[row.key.case]]


def labels(keys: Sequence[Key]) -> Callable[[Row], str]:
    """Names for rows: the scale factor where the data have one, threads only where a case has several."""
    threads = {key.case: len({other.threads for other in keys if other.case == key.case}) for key in keys}

    def label(row: Row) -> str:
        key = row.key
        scale = f" (sf {key.scale_factor:g})" if is_scaled(key.case) else ""
        words = f"{NAMES.get(key.case, key.case)}{scale}"
        form = row.ours.contestant.partition(", ")[2]
        more = [key.part, form if key.case not in QUERIES else ""]
        more.append(f"{key.threads} thr." if threads[key.case] > 1 else "")
        return " · ".join([words, *(each for each in more if each)])

    return label


def _save(figure: Figure, path: Path, said: str) -> None:
    """Write a picture that stands alone, with what it must say below it."""
    import matplotlib.pyplot as plt

    figure.supxlabel(said, fontsize=6.5, x=0.01, ha="left")
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _svg(figure: Figure) -> str:
    import matplotlib.pyplot as plt

    stream = StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = stream.getvalue()
    return in_page(text[text.index("<svg") :])


if __name__ == "__main__":
    sys.exit(main())
