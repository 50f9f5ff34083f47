"""`python -m bench report [FILE …]` draws the figures of the documentation from result files, and lists losing cases.

Without files, it reads all files in bench/results except `run-…`, the unnamed files of this machine. If two files have
the same table, the later file counts. Each figure names the machine, the versions and the commit of its results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

from bench.report import plots
from bench.report.names import HEADLINES, NAMES, QUERIES, is_scaled
from bench.report.ratios import SPARK, Row, compared, within_spark, without_spark
from bench.report.result_files import TINY, Key, Results, Timed, merged, read
from bench.report.theme import drawing, save
from sparkext.wording import format_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
_GROWTH = {
    "scaling.data": "In memory: three joins, more data",
    "scaling.joins": "In memory: more joins",
    "scaling.scan-data": "From Parquet in Spark: three joins, more data",
    "scaling.scan-joins": "From Parquet in Spark: more joins",
}


@dataclass(frozen=True)
class Plot:
    """A figure: the name of its file, the function that draws it, and its results.

    `results` has the keys of tables, and, for other lines, the names of cases or parts.
    """

    name: str
    draw: Callable[[], Figure]
    results: tuple[Key | str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the figures and print the verdicts. Return 2 if a file is not a valid result file, else 0."""
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
    draw(files, given.out)
    print(verdicts(compared(merged(files))))
    return 0


def named_files(folder: Path) -> list[Path]:
    """Return the result files that have been renamed, and so are to be shown."""
    return [path for path in sorted(folder.glob("*.jsonl")) if not path.name.startswith("run-")]


def draw(files: Sequence[Results], folder: Path) -> None:
    """Draw all figures for which the results have data."""
    folder.mkdir(parents=True, exist_ok=True)
    with drawing():
        for plot in figures(merged(files), [line for results in files for line in results.others]):
            path = folder / f"{plot.name}.svg"
            save(plot.draw(), path, caption(files, plot.results))
            print(path)


def figures(tables: Mapping[Key, Sequence[Timed]], others: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """Return the figures for which these results have data."""
    found = compared(tables)
    beside = [row for row in found if row.key.case not in QUERIES]
    queries = [row for row in _largest(found) if row.key.case in QUERIES and not row.keeps_indexes]
    headlines = [row for row in _largest(within_spark(beside)) if HEADLINES.get(row.key.case) == row.form]
    ratios = {
        "headlines": headlines,
        "against-spark": within_spark(beside),
        "queries": within_spark(queries),
        "against-engines": without_spark(beside),
        "queries-engines": without_spark(queries),
    }
    growing = {
        title: timed
        for case, title in _GROWTH.items()
        if (timed := [each for key, table in tables.items() if key.case == case for each in table if _is_drawn(each)])
    }
    following = {line["case"]: line for line in others if line.get("case", "").startswith("controller.follow")}
    peaks = [line for line in others if line.get("case") == "memory.fan-out"][-4:]
    redrawn = [line for line in others if line.get("case") == "ordered_streams.redraw"][-1:]
    study = {part: [line for line in others if line.get("part") == part] for part in ("delivery", "threads")}
    growth = tuple(each.key for timed in growing.values() for each in timed)
    made = [_ratios(name, rows) for name, rows in ratios.items() if rows]
    made += [Plot("growth", lambda: plots.growth_plot(growing), growth)] * bool(growing)
    made += [Plot("budgets", lambda: plots.budget_plot(list(following.values())), tuple(following))] * bool(following)
    made += [Plot("redraw", lambda: plots.redraw_plot(redrawn[0]), ("ordered_streams.redraw",))] * bool(redrawn)
    made += [Plot("memory", lambda: plots.memory_plot(peaks), ("memory.fan-out",))] * bool(peaks)
    for name, drawn, part in (
        ("study-rates", plots.study_rates, "delivery"),
        ("study-peaks", plots.study_peaks, "delivery"),
        ("study-threads", plots.study_threads, "threads"),
    ):
        if study[part]:
            made.append(Plot(name, lambda drawn=drawn, part=part: drawn(study[part]), (part,)))
    return made


def _is_drawn(timed: Timed) -> bool:
    """Return whether growth includes a contestant: no floors, and no cached indexes, as they omit part of the work."""
    return not timed.floor and "cached" not in timed.contestant


def _ratios(name: str, rows: Sequence[Row]) -> Plot:
    label = labels([row.key for row in rows])
    return Plot(name, lambda: plots.ratio_plot(rows, label), tuple(row.key for row in rows))


def _largest(found: Sequence[Row]) -> list[Row]:
    """Return the rows with the largest scale factor of each case."""
    most: dict[str, float] = {}
    for row in found:
        most[row.key.case] = max(row.key.scale_factor, most.get(row.key.case, 0.0))
    return [row for row in found if row.key.scale_factor == most[row.key.case]]


def labels(keys: Sequence[Key]) -> Callable[[Row], str]:
    """Return a function that names rows, with the scale factor if it matters, and threads if a case has several."""
    threads = {key.case: len({other.threads for other in keys if other.case == key.case}) for key in keys}

    def label(row: Row) -> str:
        key = row.key
        scale = f" (sf {key.scale_factor:g})" if is_scaled(key.case) else ""
        words = f"{NAMES.get(key.case, key.case)}{scale}"
        more = [key.part, row.form if key.case not in QUERIES else ""]
        more.append(f"{key.threads} thr." if threads[key.case] > 1 else "")
        return " · ".join([words, *(each for each in more if each)])

    return label


def caption(files: Sequence[Results], shown: Sequence[Key | str]) -> list[str]:
    """Return the origin of the shown results: each machine with its versions, followed by its files and commits."""
    origins: dict[Key | str, Results] = {}
    for results in files:  # the last file with a result counts
        origins.update(dict.fromkeys([*results.tables(), *(_named(line) for line in results.others)], results))
    machines: dict[str, list[str]] = {}
    others: dict[str, None] = {}
    for results in files:
        if any(origins.get(each) is results for each in shown):
            machines.setdefault(_machine(results.facts), []).append(_origin(results))
            others |= {other: None for timed in results.timed if timed.key in shown if (other := _beside(timed))}
    return [line for machine, each in machines.items() for line in (machine, "; ".join([*others, *each])) if line]


def _named(line: Mapping[str, Any]) -> str:
    """Return the name of a line's results: its part for the study, whose oldest lines have no case."""
    return str(line["part"] if line.get("suite") == "study" or "case" not in line else line["case"])


def _machine(facts: Mapping[str, str]) -> str:
    parts = [facts.get("processor"), _said(facts, "cores", "{} cores"), facts.get("memory")]
    versions = [_said(facts, "python", "Python {}"), _said(facts, "java", "Java {}"), facts.get("packages")]
    return "; ".join(filter(None, (", ".join(filter(None, each)) for each in (parts, versions))))


def _origin(results: Results) -> str:
    told = [f"{results.name}: {results.facts.get('date', 'no date')}", _said(results.facts, "commit", "commit {}")]
    return ", ".join(filter(None, told))


def _said(facts: Mapping[str, str], name: str, form: str) -> str:
    return form.format(facts[name]) if name in facts else ""


def _beside(timed: Timed) -> str:
    """Return the versions of Comet and its Spark, which run in an environment that the facts do not describe."""
    values = timed.values
    return f"Comet {values['comet']} in Spark {values['comet_spark']}" if "comet" in values else ""


def verdicts(found: Sequence[Row]) -> str:
    """Count clear wins and losses, within Spark and without it; then list every loss, the worst first."""
    counted = [
        [name, len(rows), sum(row.won for row in rows), sum(row.lost for row in rows), _mean(rows)]
        for name, rows in (("within Spark", within_spark(found)), ("without Spark", without_spark(found)))
        if rows
    ]
    lost = sorted(
        ((row, ratio) for row in found for ratio in row.ratios if ratio.value < 1), key=lambda pair: pair[1].value
    )
    losses = [
        [
            str(row.key),
            row.ours.contestant,
            ratio.contestant,
            f"{ratio.value:.2f}",
            f"{ratio.low:.2f}–{ratio.high:.2f}",
            f"{median(row.ours.seconds):.3g}",
        ]
        for row, ratio in lost
    ]
    tables = [format_table(["compared", "lines", "clear wins", "clear losses", "× Spark's default"], _texts(counted))]
    if losses:
        tables.append(
            format_table(["case", "sparkext as", "faster is", "ratio", "single runs", "ours, s"], losses, left=range(3))
        )
    return "\n\n".join(tables)


def _mean(rows: Sequence[Row]) -> str:
    """Return the geometric mean of the speedups over Spark's default plan."""
    ratios = [ratio.value for row in rows if (ratio := row.against(SPARK)) is not None]
    return f"{geometric_mean(ratios):.1f}" if ratios else ""


def _texts(lines: Iterable[Sequence[object]]) -> list[list[str]]:
    return [[str(cell) for cell in line] for line in lines]


if __name__ == "__main__":
    sys.exit(main())
