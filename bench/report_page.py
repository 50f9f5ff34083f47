"""The report as one page of HTML that needs nothing else, in light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import geometric_mean, median

from bench.names import QUERIES
from bench.plots import Plot
from bench.ratios import SPARK, Ratio, Row, compared, within_spark, without_spark
from bench.result_files import Key, Results, Timed
from bench.theme import DARK, LIGHT, variables

_STYLE = """
:root { color-scheme: light dark; LIGHT --card: #f5f7f9; }
@media (prefers-color-scheme: dark) { :root { DARK --card: #1b2127; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 2rem 1.2rem 5rem; background: var(--surface); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .3rem; }
p { margin: .3rem 0 1rem; max-width: 75ch; }
.muted, figcaption, footer { color: var(--muted); }
nav { margin: 1rem 0; } nav a { margin-right: 1.1rem; }
a { color: var(--win); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)); gap: .8rem; margin: 1.4rem 0; }
.tile { background: var(--card); border-radius: 8px; padding: .9rem 1rem; }
.tile b { display: block; font-size: 1.7rem; line-height: 1.25; }
.tile span { color: var(--muted); font-size: .88rem; }
.lose { color: var(--lose); } .win { color: var(--win); } .level { color: var(--muted); }
figure { margin: 1rem 0; overflow-x: auto; } figcaption { font-size: .78rem; }
figure svg { width: 100%; min-width: 640px; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .28rem .7rem .28rem 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { color: var(--muted); font-weight: 600; } td.n, th.n { text-align: right; white-space: nowrap; }
summary { cursor: pointer; font-weight: 600; margin: 1rem 0 .5rem; }
"""


def page(files: Sequence[Results], tables: Mapping[Key, Sequence[Timed]], figures: Mapping[Plot, str]) -> str:
    """Lay out the page: what to remember, the figures, what is lost, every time, machines and versions."""
    found = compared(tables)
    parts = [(plot.name, plot.title, _figure(plot, svg, files)) for plot, svg in figures.items()]
    lost = [
        ("losses", "Where it loses", _losses(found)),
        ("all", "Every time", _all(tables)),
        ("machines", "Machines and versions", _machines(files)),
    ]
    sections = [*parts, *lost]
    style = _STYLE.replace("LIGHT", variables(LIGHT)).replace("DARK", variables(DARK))
    links = "".join(f'<a href="#{name}">{escape(title)}</a> ' for name, title, _ in sections)
    body = "".join(f'<section id="{name}"><h2>{escape(title)}</h2>{text}</section>\n' for name, title, text in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>sparkext: benchmarks</title><style>{style}</style></head><body>\n"
        "<header><h1>sparkext: benchmarks</h1>"
        "<p>Pipelined joins for Spark, beside Spark's own plans and other engines. A line is a case and one way of"
        " running sparkext: with indexes built anew (“cold”) or those of the last run (“cached”), for example. All"
        " contestants of a line did the same work on the same data with the same cores, in turns; their answers were"
        " compared before they were timed. Times are medians; the runs behind each are listed below.</p>"
        f"{_tiles(found)}<nav>{links}</nav></header>\n{body}"
        "<footer><p>Made by <code>make bench-report</code> from the files that are named above.</p></footer>"
        "</body></html>\n"
    )


def caption(files: Sequence[Results], shown: Sequence[Key | str]) -> list[str]:
    """What must stand beside figures of these tables and cases: machine and versions, then files, dates and commits."""
    origins = _origins(files)
    sources = [results for results in files if any(origins.get(each) is results for each in shown)]
    machines: dict[str, list[str]] = {}
    for results in sources:
        machines.setdefault(_machine(results.facts), []).append(_origin(results))
    others = {
        other: None for results in sources for timed in results.timed if timed.key in shown if (other := _beside(timed))
    }
    return [line for machine, each in machines.items() for line in (machine, "; ".join([*others, *each])) if line]


def _origins(files: Sequence[Results]) -> dict[Key | str, Results]:
    """The file of each table and of each case that is no table: where several have it, the one that counts."""
    found: dict[Key | str, Results] = {}
    for results in files:
        found.update(dict.fromkeys([*results.tables(), *(line["case"] for line in results.others)], results))
    return found


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
    """The versions of what ran in another environment than the one that the facts tell of."""
    values = timed.values
    return f"Comet {values['comet']} in Spark {values['comet_spark']}" if "comet" in values else ""


def _tiles(found: Sequence[Row]) -> str:
    if not found:
        return ""
    tiles = []
    if in_spark := within_spark(found):
        won, lost, level = _verdicts(in_spark)
        tiles += [
            (
                f"{won} of {len(in_spark)}",
                "lines are clear wins within Spark: the slowest run of sparkext is faster than the fastest of every"
                " plan of Spark's own, and of an accelerator for it",
                "win",
            ),
            (str(lost), "are clear losses: the slowest run of such a plan is faster than the fastest of ours", "lose"),
            (str(level), "are neither: runs overlap with those of such a plan", "level"),
        ]
    if beside := without_spark(found):
        won, lost, level = _verdicts(beside)
        text = f"lines are clear wins against engines that run without Spark; {lost} are clear losses, {level} neither"
        tiles.append((f"{won} of {len(beside)}", text, "win" if won > lost else "lose"))
    groups = {
        "on equal keys, indexes built anew": [
            row for row in found if row.key.suite != "ordered" and row.key.case not in QUERIES and not row.keeps_indexes
        ],
        "on ranges and as-of joins, indexes built anew": [
            row for row in found if row.key.suite == "ordered" and not row.keeps_indexes
        ],
        "for whole TPC-H and TPC-DS queries of which auto mode plans a join, indexes built anew": [
            row for row in found if row.key.case in QUERIES and not row.keeps_indexes
        ],
    }
    for what, rows in groups.items():
        against = [ratio.value for row in rows if (ratio := row.against(SPARK)) is not None]
        if against:
            mean = geometric_mean(against)
            lines = f"geometric mean of {len(against)} lines" if len(against) > 1 else "one line"
            text = f"as fast as Spark's default plan {what}: {lines}"
            tiles.append((f"{mean:.1f}×", text, "win" if mean >= 1 else "lose"))
    cells = "".join(
        f'<div class="tile"><b class="{mark}">{value}</b><span>{text}</span></div>' for value, text, mark in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _verdicts(found: Sequence[Row]) -> tuple[int, int, int]:
    """How many are clear wins, clear losses, and neither."""
    won, lost = sum(row.won for row in found), sum(row.lost for row in found)
    return won, lost, len(found) - won - lost


def _figure(plot: Plot, svg: str, files: Sequence[Results]) -> str:
    said = "<br>".join(map(escape, caption(files, plot.results)))
    return (
        f'<p class="muted">{escape(plot.text)}</p><figure role="img" aria-label="{escape(plot.title)}">{svg}'
        f"<figcaption>{said}</figcaption></figure>"
    )


def _losses(found: Sequence[Row]) -> str:
    """Every competitor that is faster in any line, the worst first."""
    lost = sorted(
        ((row, ratio) for row in found for ratio in row.ratios if ratio.value < 1), key=lambda pair: pair[1].value
    )
    if not lost:
        return "<p>Nowhere in these files.</p>"
    lines = [_loss(row, ratio) for row, ratio in lost]
    return (
        '<p class="muted">The interval is that of single runs: the fastest of one against the slowest of the other. One'
        " that holds 1 is level.</p>"
        + _table(["case", "sparkext as", "faster is", "n:sparkext s", "n:the other s", "n:ratio", "n:interval"], lines)
    )


def _loss(row: Row, ratio: Ratio) -> list[str]:
    ours = median(row.ours.seconds)
    return [
        escape(str(row.key)),
        escape(row.ours.contestant),
        escape(ratio.contestant),
        f"{ours:.3g}",
        f"{ours * ratio.value:.3g}",
        f'<b class="lose">{ratio.value:.2f}×</b>',
        f"{ratio.low:.2f} – {ratio.high:.2f}",
    ]


def _all(tables: Mapping[Key, Sequence[Timed]]) -> str:
    suites: dict[str, list[list[str]]] = {}
    for key, table in tables.items():
        lines = suites.setdefault(key.suite, [])
        for timed in sorted(table, key=lambda timed: median(timed.seconds)):
            name = escape(timed.contestant)
            lines.append(
                [
                    escape(str(key)),
                    f"<b>{name}</b>" if timed.ours else name,
                    f"{median(timed.seconds):.3g}",
                    f"{min(timed.seconds):.3g} – {max(timed.seconds):.3g}",
                    str(len(timed.seconds)),
                ]
            )
    header = ["case", "contestant", "n:median s", "n:min – max s", "n:runs"]
    return "".join(
        f"<details><summary>{suite}: {len(lines)} times</summary>{_table(header, lines)}</details>"
        for suite, lines in suites.items()
    )


def _machines(files: Sequence[Results]) -> str:
    return "".join(
        f"<h3>{escape(results.name)}</h3>"
        + _table(["", ""], [[escape(name), escape(value)] for name, value in _facts(results).items()])
        for results in files
    )


def _facts(results: Results) -> dict[str, str]:
    others = {other: None for timed in results.timed if (other := _beside(timed))}
    return {**results.facts, **({"beside": ", ".join(others)} if others else {})}


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML; columns whose name begins with `n:` hold numbers."""
    marks = [' class="n"' if name.startswith("n:") else "" for name in header]
    head = "".join(f"<th{mark}>{name.removeprefix('n:')}</th>" for mark, name in zip(marks, header, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{cell}</td>" for mark, cell in zip(marks, line, strict=True)) + "</tr>"
        for line in lines
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
