"""The HTML report of invented runs: its content, and its legibility on any background."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from sparkext.parquet.metrics import ScanMetrics
from sparkext.plans.adaptive.output_size import BudgetLimits, OutputSizeController
from sparkext.reports.metrics import TaskId, TaskMetrics
from sparkext.reports.report import Report, summarise
from sparkext.reports.svg import COLORS

LABELS = ["inner on a = x", "left on b = y & c < d"]
EPOCH = 1_800_000_000.0
Headroom = Callable[[float], tuple[int, str] | None]


def task(partition: int, headroom: Headroom, *, calls: int = 40, begins: float = 0.0, keep: int = 256) -> TaskMetrics:
    """Return a task of two joins and a gather. Each decides `calls` budgets with this headroom, one per 0.1 s."""
    now = begins
    controller = OutputSizeController(
        [16.0, 24.0, 200.0],
        BudgetLimits(1024, 131_072, 64 << 20, 0.5),
        lambda: headroom(now),
        clock=lambda: now,
        keep_decisions=keep,
    )
    for _ in range(calls):
        for operator in range(3):
            rows = controller.budget(operator).rows
            controller.observe(operator, rows, rows, rows * 200 if operator == 2 else None)
        now += 0.1
    index: dict[str, Any] = {"kind": "hash", "reason": "sparse", "bytes": 2048, "build_rows": 1234, "build_bytes": 9872}
    index["is_partition"] = False
    return TaskMetrics(
        TaskId(1, partition, 0),
        operators=controller.summaries(),
        seconds=[0.5, 0.25, 0.25],
        indexes=[{**index, "seconds": 0.125, "reused": False}, {**index, "seconds": 9.0, "reused": True}],
        decisions=[
            (EPOCH + at, operator, free, budget, made) for at, operator, free, _, budget, made in controller.decisions
        ],
        rows_in=1_000_000,
        peak_rss_bytes=300 << 20,
        started=EPOCH + begins,
        elapsed_seconds=now - begins,
    )


def falling(at: float) -> tuple[int, str]:
    """Headroom that falls from 64 MiB to 4 MiB within two seconds, and rises again."""
    return int((4 + 30 * abs(at - 2)) * 2**20), "configured"


def page_of(report: Report) -> ElementTree.Element:
    return ElementTree.fromstring(report._repr_html_())


def words_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_the_page_of_a_run() -> None:
    report = summarise(LABELS, [task(0, falling), task(1, falling, begins=0.5)], ("A note, with a <b>.",))
    page = page_of(report)
    words = words_of(page)
    assert words.startswith("2 joins in one pipeline, 2 tasks, 4.50 s")
    assert "2,000,000 rows in" in words and "peak worker memory 300.0 MiB" in words
    assert "A note, with a <b>." in words
    first, second, gather = [[words_of(cell) for cell in row] for row in page.iter("tr")][1:]
    assert first[0] == "1 inner on a = xsparse" and second[0].startswith("2 left on b = y & c < d")
    assert first[1:3] == ["1,2349.6 KiB", "hash2.0 KiB, built in 0.125 s"]
    assert second[2].endswith("reused") and gather[1:3] == ["", ""]
    assert first[5].endswith("80 calls") and " / " in first[5]
    assert first[6] == "4.0 MiBconfigured"
    assert "determined by spark.sparkext.memory.maxBytes" in [span.get("title") for span in page.iter("span")]
    assert first[7] == "1.000 s"


def test_the_timeline_of_a_run() -> None:
    svg = next(page_of(summarise(LABELS, [task(0, falling), task(1, falling, begins=0.5)])).iter("svg"))
    texts = [words_of(text) for text in svg.iter("text")]
    assert "Free memory (headroom): never below 4.0 MiB; the tightest limit was spark.sparkext.memory.maxBytes" in texts
    assert "lowest 4.0 MiB" in texts
    assert {"0", "32 MiB", "96 MiB", "10k", "0 s", "4 s", "1", "2", "3"} <= set(texts)
    titles = [title.text for title in svg.iter("title")]
    assert titles == [
        "free memory",
        "1: inner on a = x, 80 budgets",
        "2: left on b = y & c < d, 80 budgets",
        "3: gather payload, 80 budgets",
    ]
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for name, number in re.findall(r'\b(c?[xy])="(-?[\d.]+)"', ElementTree.tostring(svg, "unicode")):
        assert 0 <= float(number) <= (height if name.endswith("y") else width)


def test_budgets_on_the_timeline_fall_and_rise_with_the_headroom() -> None:
    """The lowest points of both lines have the largest y, at about the same x."""
    svg = next(page_of(summarise(LABELS, [task(0, falling)])).iter("svg"))
    for line in svg.findall("g/path"):
        places = [tuple(map(float, place.split())) for place in re.split("[ML]", line.attrib["d"]) if place]
        assert len(places) > 20
        x, _ = max(places, key=lambda place: place[1])
        assert 78 + 774 * 0.42 < x < 78 + 774 * 0.62


def test_the_page_of_a_long_run_is_no_longer() -> None:
    short = summarise(LABELS, [task(0, falling)])._repr_html_()
    long = summarise(LABELS, [task(number, falling, calls=400) for number in range(60)])._repr_html_()
    assert len(long) < 5 * len(short) < 200_000


def test_a_run_without_a_timeline() -> None:
    report = summarise(LABELS, [task(0, falling, keep=0)])
    words = words_of(page_of(report))
    assert "No timeline: the tasks recorded no decisions (spark.sparkext.report.decisions)." in words
    assert report.decisions_to_pandas().empty
    idle = summarise(LABELS, [task(0, falling, calls=0)])
    assert "No timeline" in words_of(page_of(idle))


def test_a_lowest_point_that_was_not_kept_is_not_pointed_at() -> None:
    one = task(0, falling)
    one.decisions = [decision for decision in one.decisions if decision[2] != 4 << 20]
    words = words_of(page_of(summarise(LABELS, [one])))
    assert "never below 4.0 MiB" in words and "lowest 4" not in words


def test_pairs_that_a_condition_drops() -> None:
    """The next operator receives fewer rows than pairs were found: the condition was tested on more pairs."""
    one = task(0, falling)
    for operator, (rows_in, rows_out) in zip(one.operators, [(100, 5_000), (30, 30), (30, 30)], strict=True):
        operator["rows_in"], operator["rows_out"] = rows_in, rows_out
    report = summarise(LABELS, [one])
    assert [(join.rows_out, join.pairs_tried) for join in report.joins] == [(30, 5_000), (30, None), (30, None)]
    assert report.joins[0].fan_out == 0.3
    assert "100→ 305,000 pairs tried" in words_of(page_of(report))


def test_unknown_headroom() -> None:
    report = summarise(LABELS, [task(0, lambda at: None)])
    words = words_of(page_of(report))
    assert "Free memory is unknown" in words and "unknown" in words
    assert report.decisions_to_pandas()["headroom"].isna().all()


@pytest.mark.parametrize("calls", [1, 2])
def test_a_few_decisions_are_dots(calls: int) -> None:
    svg = next(page_of(summarise(LABELS, [task(0, falling, calls=calls)])).iter("svg"))
    assert len(svg.findall("g/circle")) == 3 * calls + 3 * calls  # the headroom is read before every budget


def test_files_that_workers_read() -> None:
    one = task(0, falling)
    one.scan = ScanMetrics(3 << 20, 5_000, 2, 7)
    assert "workers read 3.0 MiB: 5,000 rows in 2 row groups, 7 more" in words_of(page_of(summarise(LABELS, [one])))


@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("background", ["#ffffff", "#111111"])
def test_lines_stand_out_from_light_and_dark(color: str, background: str) -> None:
    """WCAG's contrast for graphics is 3 to 1."""
    lighter, darker = sorted(map(luminance, (color, background)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 3


def luminance(color: str) -> float:
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_only_inherited_colors_besides_those_of_lines() -> None:
    """These are legible on any background: the page's own colour, and the shades that are tested above."""
    page = summarise(LABELS, [task(0, falling)])._repr_html_()
    told = set(re.findall(r"#[0-9a-f]{3,6}\b|\brgba?\([^)]*\)", page))
    assert told <= {*COLORS, "#808080", "rgba(128,128,128,.35)"}
    assert "<style" not in page and "background:#fff" not in page


def test_the_loads_of_partitions() -> None:
    planned = {"before": [8.0, 0.0, 1.0], "after": [3.0, 3.0, 3.0], "moved": 1, "split": 2}
    tasks = [task(number, falling, calls=calls) for number, calls in enumerate((20, 30, 40))]
    report = summarise(LABELS, tasks, partitions=json.dumps(planned))
    assert report.partitions is not None
    assert report.partitions.took == pytest.approx(
        [2 + 0.125, 3 + 0.125, 4 + 0.125]
    )  # the joins, and their index builds
    told = "3 partitions, 1 bucket moved, 2 buckets split: skew 2.67 by hash, 0.00 as planned, 0.64 as executed"
    assert told in str(report).splitlines()
    _, chart = page_of(report).iter("svg")
    assert told in words_of(chart)
    assert [words_of(name) for name in chart.iter("title")] == ["by hash", "as planned", "as executed"]
    heights = [
        re.findall(r"V([\d.]+)", str(line.get("d"))) for line in chart.iter("path") if line.get("fill") == "none"
    ]
    assert [len(steps) for steps in heights] == [2, 2, 2]  # a line begins at its first value
    assert all(steps == sorted(steps, key=float) for steps in heights)  # the heaviest first, in downward y


@pytest.mark.parametrize("loads", [[0.5], [0.0, 0.0]])
def test_loads_that_no_chart_shows(loads: list[float]) -> None:
    planned = {"before": loads, "after": loads, "moved": 0, "split": 0}
    report = summarise(LABELS, [task(0, falling, calls=1)], partitions=json.dumps(planned))
    assert report.partitions is not None and "0 buckets moved" in str(report)
