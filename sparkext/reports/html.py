"""A report as HTML, for notebooks: a table of the operators, and the timeline of headroom and budgets.

The page uses no script, no style sheet and no external resource: elements have inline styles, and inherit the colours
of text and background from the notebook. Texts from data, above all column names, are escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from sparkext.reports import partition_chart as partition_chart
from sparkext.reports.text import describe_builds, describe_files, describe_orders
from sparkext.reports.timeline import color_of, draw_timeline
from sparkext.wording import LIMITS, format_bytes, format_count, format_ratio

if TYPE_CHECKING:
    from sparkext.reports.pipeline_run import JoinReport, PipelineRun

_HEADER = (
    ("operator", "the operators of the pipeline, in the order of execution"),
    ("build side", "rows, and the Arrow size of their columns"),
    ("index", "the type of the index, its size, and the time to build it"),
    ("rows in → out", "the sum over all tasks"),
    ("fan-out", "output rows per input row"),
    ("budget, rows", "smallest / median / largest limit of a call's output rows, and the number of calls"),
    ("lowest headroom", "the least free memory before any call, and the limit that determined it"),
    ("in kernels", "time, summed over parallel tasks"),
)
_CELL = "padding:5px 10px;vertical-align:top;border:0;background:none;white-space:nowrap"
_RULE = "border-top:1px solid rgba(128,128,128,.35)"


def render_html(report: PipelineRun) -> str:
    """Return the report as one element of a page."""
    joins = len(report.joins) - 1
    total = sum(join.seconds for join in report.joins) or 1.0
    rows = "".join(_render_row(number, join, join.seconds / total) for number, join in enumerate(report.joins))
    lines = [*describe_builds(report), *report.notes]
    notes = "".join(f'<p style="margin:6px 0 0;opacity:.75">{escape(note)}</p>' for note in lines)
    loads = "" if report.partitions is None else partition_chart.draw_partition_loads(report.partitions)
    return (
        '<div style="font:13px system-ui,sans-serif;line-height:1.35;max-width:1200px">'
        f'<div style="font-weight:600;font-size:14px">{format_count(joins, "join")} in one pipeline,'
        f" {format_count(len(report.tasks), 'task')}, {report.elapsed_seconds:.2f} s</div>"
        f'<div style="opacity:.75;margin:2px 0 8px">{escape(_render_summary(report))}</div>'
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;border:0;table-layout:auto;width:auto;'
        f'margin:0 0 14px;font-size:12px"><thead><tr>{_render_header()}</tr></thead><tbody>{rows}</tbody></table></div>'
        f"{draw_timeline(report)}{loads}{notes}</div>"
    )


def _render_summary(report: PipelineRun) -> str:
    rows_in = sum(task.rows_in for task in report.tasks)
    peak = max((task.peak_rss_bytes for task in report.tasks), default=0)
    parts = [f"{rows_in:,} rows in, {report.joins[-1].rows_out:,} rows out", f"peak worker memory {format_bytes(peak)}"]
    return "; ".join([*parts, *describe_files(report), *describe_orders(report)])


def _render_header() -> str:
    style = f"{_CELL};font-weight:600;text-align"
    return "".join(
        f'<th title="{meaning}" style="{style}:{"right" if number else "left"}">{name}</th>'
        for number, (name, meaning) in enumerate(_HEADER)
    )


def _render_row(number: int, join: JoinReport, share: float) -> str:
    kind, _, condition = join.operator.partition(" ")
    badge = f'<b style="color:{color_of(number)}">{number + 1}</b>'
    name = f"{badge} <b>{escape(kind)}</b> {escape(condition)}"
    operator = f"{name}{_render_aside(join.reason or '', wraps=True)}"
    cells = [
        _render_cell(operator, "text-align:left;white-space:normal;min-width:230px;max-width:420px"),
        _render_cell(
            ""
            if join.build_rows is None
            else f"{join.build_rows:,}{_render_aside(format_bytes(join.build_bytes or 0))}"
        ),
        _render_cell(_render_index(join)),
        _render_cell(f"{join.rows_in:,}{_render_aside(f'→ {join.rows_out:,}')}{_render_tried_pairs(join)}"),
        _render_cell(format_ratio(join.fan_out)),
        _render_cell(_render_budgets(join)),
        _render_cell(_render_headroom(join)),
        _render_cell(f"{join.seconds:.3f} s{_draw_bar(share, color_of(number))}"),
    ]
    return f'<tr style="background:none">{"".join(cells)}</tr>'


def _render_cell(content: str, style: str = "text-align:right") -> str:
    return f'<td style="{_CELL};{_RULE};{style}">{content}</td>'


def _render_aside(words: str, wraps: bool = False) -> str:
    """Return a second line that explains the first."""
    if not words:
        return ""
    return f'<div style="opacity:.7;font-size:11px{"" if wraps else ";white-space:nowrap"}">{escape(words)}</div>'


def _render_index(join: JoinReport) -> str:
    if join.index is None:
        return ""
    built = "reused" if join.index_reused else f"built in {join.build_seconds or 0:.3f} s"
    return f"{escape(join.index)}{_render_aside(f'{format_bytes(join.index_bytes or 0)}, {built}')}"


def _render_tried_pairs(join: JoinReport) -> str:
    return "" if join.pairs_tried is None else _render_aside(f"{join.pairs_tried:,} pairs tried")


def _render_budgets(join: JoinReport) -> str:
    if join.budget_min is None or join.budget_median is None or join.budget_max is None:
        return ""
    budgets = [join.budget_min, join.budget_median, join.budget_max]
    rows = " / ".join(f"{budget:,}" for budget in (budgets if len(set(budgets)) > 1 else budgets[:1]))
    return f"{rows}{_render_aside(format_count(join.morsels, 'call'))}"


def _render_headroom(join: JoinReport) -> str:
    if join.lowest_headroom is None:
        return "unknown" if join.morsels else ""
    limit = join.headroom_limit or ""
    hint = escape(LIMITS.get(limit, limit), quote=True)
    return f'<span title="determined by {hint}">{format_bytes(join.lowest_headroom)}</span>{_render_aside(limit)}'


def _draw_bar(share: float, color: str) -> str:
    return f'<div style="height:3px;margin:5px 0 0 auto;width:{max(share, 0.01) * 100:.0f}%;background:{color}"></div>'
