"""The report separates wins from losses and uses the latest of two results; its figures are self-contained."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import all_cases
from bench.cases.queries.comparison import CACHED, COLD, DEFAULT, Compared, print_comparison
from bench.report import summary as report
from bench.report.fit import power_law
from bench.report.names import is_scaled
from bench.report.plots import DELIVERIES
from bench.report.ratios import HINTED, REWRITTEN, SPARK, compared, within_spark, without_spark
from bench.report.result_files import TINY, Key, merged, read
from bench.report.summary import caption

KILLED = ("materialize", 400 << 20)
FACTS = {"date": "2026-01-01 10:00 UTC", "processor": "made up <fast>", "cores": "2", "packages": "pyspark 4.3.0"}


def line(case: str, contestant: str, seconds: list[float], **values: Any) -> dict[str, Any]:
    return {
        "suite": case.split(".")[0],
        "case": case,
        "scale_factor": 1.0,
        "threads": 2,
        "contestant": contestant,
        "ours": contestant.startswith("sparkext"),
        "rows": 10,
        "seconds": seconds,
        **values,
    }


def write(path: Path, lines: list[dict[str, Any]], **facts: str) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in [{"facts": {**FACTS, **facts}}, *lines]))
    return path


SCAN = [
    line("scan.one-join", "sparkext, cold", [2.0, 2.2, 1.8]),
    line("scan.one-join", "Spark, default plan", [6.0, 5.0, 7.0]),
    line("scan.one-join", "Spark, merge hints", [5.0]),
    line("scan.one-join", "Spark, broadcast hints", [1.0]),
    line("scan.one-join", "(floor: nothing)", [0.5], floor=True),
]
GROWTH = [
    line("scaling.data", "sparkext", [0.1 * size], part=f"{size} times the data", size=size, of="times the data")
    for size in (1, 2, 4, 8)
]


def test_spark_and_its_hinted_plans_are_two_competitors_and_a_floor_is_none(tmp_path: Path) -> None:
    [row] = compared(merged([read(write(tmp_path / "a.jsonl", SCAN))]))
    assert {ratio.engine: ratio.value for ratio in row.ratios} == {SPARK: 3.0, HINTED: 0.5}
    assert row.nearest.contestant == "Spark, broadcast hints"
    assert row.against(SPARK).low == pytest.approx(5.0 / 2.2)


def test_another_query_is_no_hint(tmp_path: Path) -> None:
    lines = [
        line("ordered.overlap", "sparkext, cold", [2.0]),
        line("ordered.overlap", "Spark, bins and explode", [3.0]),
    ]
    [row] = compared(merged([read(write(tmp_path / "a.jsonl", lines))]))
    assert [ratio.engine for ratio in row.ratios] == [REWRITTEN]
    assert row.won


def test_an_accelerator_is_named_with_its_version_and_runs_in_spark(tmp_path: Path) -> None:
    versions = {"comet": "0.12.0", "comet_spark": "3.5.7"}
    lines = [
        line("comet.graph", name, seconds, **versions)
        for name, seconds in (("sparkext, cold", [1.0]), ("Comet, broadcast hints", [2.0]))
    ]
    found = compared(merged([read(write(tmp_path / "a.jsonl", lines))]))
    assert [ratio.engine for row in within_spark(found) for ratio in row.ratios] == ["Comet 0.12 in Spark 3.5"]
    assert without_spark(found) == []
    [plot] = (plot for plot in report.figures(merged([read(tmp_path / "a.jsonl")]), []) if plot.name == "against-spark")
    legend = [text.get_text() for text in plot.draw().legends[0].get_texts()]
    assert legend[0] == "Comet 0.12 in Spark 3.5"


def test_what_overlaps_is_neither_won_nor_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        line("hard.graph", "sparkext, cold", [2.0, 2.2, 1.8]),
        line("hard.graph", "sparkext, indexes cached", [1.0, 1.1]),
        line("hard.graph", "sparkext, rows from Spark", [9.0, 8.0]),
        line("hard.graph", "Spark, default plan", [5.0, 7.0]),
        line("hard.graph", "DuckDB", [2.1, 2.4]),
        line("hard.strings", "sparkext, cold", [1.0]),
        line("hard.strings", "Spark, default plan", [4.0]),
        line("tpch.queries", "sparkext, cold", [1.0], part="q03"),
        line("tpch.queries", "Spark, default plan", [3.0], part="q03"),
    ]
    path = write(tmp_path / "a.jsonl", lines)
    cold, cached, slow, strings, query = compared(merged([read(path)]))
    assert [row.won for row in (cold, cached, slow, strings, query)] == [False, True, False, True, True]
    assert [row.lost for row in (cold, cached, slow)] == [False, False, True]
    assert [row.keeps_indexes for row in (cold, cached, query)] == [False, True, False]
    assert report.main([str(path), "--out", str(tmp_path / "out")]) == 0
    said = [re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()]
    assert ["within Spark", "5", "4", "1", "2.7"] in said
    assert ["without Spark", "3", "1", "1"] in said
    assert [(line[1], line[2], line[3]) for line in said if line[0].startswith("hard.graph")] == [
        ("sparkext, rows from Spark", "DuckDB", "0.26"),
        ("sparkext, rows from Spark", "Spark, default plan", "0.71"),
    ]


def test_pictures_say_what_they_were_measured_with(tmp_path: Path) -> None:
    compared_to = {"comet": "0.12.0", "comet_spark": "3.5.7"}
    lines = [line("comet.graph", name, [1.0], **compared_to) for name in ("sparkext, cold", "Comet, broadcast hints")]
    earlier = read(write(tmp_path / "a.jsonl", [*SCAN, *lines], commit="aaaaaaa", python="3.11.7", java="17.0.15"))
    later = read(write(tmp_path / "b.jsonl", GROWTH, commit="bbbbbbb", date="2026-02-01 10:00 UTC"))
    machine, files = caption([earlier, later], [Key("comet.graph", "", 1.0, 2)])
    assert machine == "made up <fast>, 2 cores; Python 3.11.7, Java 17.0.15, pyspark 4.3.0"
    assert files == "Comet 0.12.0 in Spark 3.5.7; a: 2026-01-01 10:00 UTC, commit aaaaaaa"
    said = caption(
        [earlier, later], [Key("scan.one-join", "", 1.0, 2), Key("scaling.data", "1 times the data", 1.0, 2)]
    )
    assert said[1::2] == ["a: 2026-01-01 10:00 UTC, commit aaaaaaa", "b: 2026-02-01 10:00 UTC, commit bbbbbbb"]


def test_a_run_that_was_appended_adds_its_commit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", SCAN, commit="aaaaaaa")
    for commit in ("aaaaaaa", "bbbbbbb"):
        with path.open("a") as stream:
            stream.write(json.dumps({"facts": {**FACTS, "date": "2026-03-01 10:00 UTC", "commit": commit}}) + "\n")
    assert read(path).facts == {**FACTS, "commit": "aaaaaaa, bbbbbbb"}


def test_a_scale_factor_stands_where_there_is_one(tmp_path: Path) -> None:
    lines = [
        line(case, name, [1.0]) for case in ("hard.graph", "scan.aggregate") for name in ("sparkext, cold", "DuckDB")
    ]
    found = compared(merged([read(write(tmp_path / "a.jsonl", lines))]))
    label = report.labels([row.key for row in found])
    assert [label(row) for row in found] == [
        "paths in a power-law graph · cold",
        "three TPC-H joins, sums (sf 1) · cold",
    ]
    assert [str(row.key) for row in found] == ["hard.graph, 2 threads", "scan.aggregate, sf 1, 2 threads"]
    assert not [name for name, case in all_cases().items() if is_scaled(name) and not case.scaled]


def test_the_mean_of_queries_is_that_of_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """If ratios were rounded first, their mean would be 0.39."""
    seconds = {"q16": (0.728, 2.139), "q72": (4.472, 12.94), "q95": (2.089, 4.358)}
    queries = [
        Compared(name, [1, 2], {COLD: cold, CACHED: cold / 2, DEFAULT: default})
        for name, (cold, default) in seconds.items()
    ]
    print_comparison([Compared("q07", [], {}), *queries])
    said = capsys.readouterr().out
    assert [line.rpartition(", the geometric")[0] for line in said.splitlines()[-2:]] == [
        "sparkext, cold, over Spark, default plan: 0.38",
        "sparkext, indexes cached, over Spark, default plan: 0.19",
    ]
    assert re.search(r"q16 +1\+2 +0.73 +0.36 +2.14", said) and re.search(r"q07 +none +same plan", said)


def test_queries_without_another_plan_have_no_mean(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison([Compared(name, [], {}) for name in ("q01", "q02")])
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        [name, "none", "same", "plan"] for name in ("q01", "q02")
    ]


def test_queries_are_drawn_at_the_largest_scale_with_indexes_built_anew(tmp_path: Path) -> None:
    lines = [
        {**line("tpch.queries", name, [1.0], part=part), "scale_factor": scale}
        for scale, parts in ((1.0, ["q03"]), (3.0, ["q03", "q04"]))
        for part in parts
        for name in (COLD, CACHED, DEFAULT, "Spark, broadcast by setting", "DuckDB")
    ]
    lines += [line("tpcds.queries", name, [1.0], part="q72") for name in (COLD, DEFAULT)]
    plots = {plot.name: plot for plot in report.figures(merged([read(write(tmp_path / "a.jsonl", lines))]), [])}
    tables = [Key("tpch.queries", "q03", 3.0, 2), Key("tpch.queries", "q04", 3.0, 2)]
    assert plots["queries"].results == (*tables, Key("tpcds.queries", "q72", 1.0, 2))
    assert plots["queries-engines"].results == tuple(tables)
    assert set(plots) == {"queries", "queries-engines"}


def test_series_are_no_comparisons_of_their_own(tmp_path: Path) -> None:
    lines = [*GROWTH, line("scaling.data", "DuckDB", [1.0], part="1 times the data", size=1, of="times the data")]
    assert compared(merged([read(write(tmp_path / "a.jsonl", lines))])) == []


def test_the_later_file_counts_whatever_the_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = write(tmp_path / "a.jsonl", [line("scan.one-join", "sparkext, cold", [9.0])], date="2026-02-01 10:00 UTC")
    earlier = write(tmp_path / "b.jsonl", SCAN)
    report.main([str(later), str(earlier), "--out", str(tmp_path / "out")])
    assert "within Spark" not in capsys.readouterr().out  # there is no contestant left to compare with
    tables = merged([read(earlier), read(later)])
    assert [timed.seconds for timed in tables[Key("scan.one-join", "", 1.0, 2)]] == [(9.0,)]


def test_figures_stand_alone_in_light_and_in_dark(tmp_path: Path) -> None:
    memory = [
        {
            "case": "memory.fan-out",
            "scale_factor": 1.0,
            "threads": 2,
            "fan_out": fan_out,
            "peak": 4 << 28,
            "baseline": 1,
        }
        for fan_out in (1, 1000)
    ]
    out = tmp_path / "out"
    assert report.main([str(write(tmp_path / "a.jsonl", [*SCAN, *GROWTH, *memory])), "--out", str(out)]) == 0
    found = {path.name: path.read_text() for path in out.iterdir()}
    assert sorted(found) == ["against-spark.svg", "growth.svg", "headlines.svg", "memory.svg"]
    for svg in found.values():
        assert "prefers-color-scheme: dark" in svg and "var(--ink)" in svg
        assert "#0000" not in svg  # every placeholder of a colour has become a variable
        assert not re.search(r'href="(?!#)|@import|<script', svg)
        assert "made up &lt;fast&gt;" in svg
    assert "0.50×" in found["against-spark.svg"]


def test_the_trace_of_budgets_is_drawn(tmp_path: Path) -> None:
    trace = {
        "case": "controller.follow.group",
        "events": [[10.0, "begins"], [12.0, "limit halved"]],
        "samples": [[10.0, 600 << 20, 100 << 20], [12.0, 300 << 20, 200 << 20]],
        "decisions": [[10.0 + step / 1000, step % 4, (500 - step // 10) << 20, 1000, 900] for step in range(4000)],
    }
    write(tmp_path / "a.jsonl", [])
    with (tmp_path / "a.jsonl").open("a") as stream:
        stream.write(json.dumps(trace) + "\n")
    assert report.main([str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "out")]) == 0
    assert "In a control group" in (tmp_path / "out" / "budgets.svg").read_text()


def test_a_study_is_drawn_and_what_was_killed_is_marked(tmp_path: Path) -> None:
    def run(part: str, delivery: str, limit: int | None, threads: str, cores: int, outcome: str) -> dict[str, Any]:
        found = {"part": part, "delivery": delivery, "limit": limit, "threads": threads, "cores": cores}
        return {**found, "fan_out": 10, "build_rows": 1000, "outcome": outcome, "group_peak": 9 << 20} | (
            {"rows": 1_000_000, "seconds": 0.5} if outcome == "finished" else {}
        )

    lines = [
        run("delivery", delivery, limit, "cooperative", 1, "killed" if (delivery, limit) == KILLED else "finished")
        for delivery in DELIVERIES
        for limit in (None, 400 << 20)
    ]
    lines += [
        run("threads", "adaptive", None, *way, "finished")
        for way in (("cooperative", 1), ("cooperative", 2), ("independent", 2))
    ]
    assert report.main([str(write(tmp_path / "study.jsonl", lines)), "--out", str(tmp_path / "out")]) == 0
    rates, peaks, threads = (
        (tmp_path / "out" / f"study-{name}.svg").read_text() for name in ("rates", "peaks", "threads")
    )
    assert "limit 400 MiB" in rates and "1,000 build rows a join" in threads
    assert peaks.count(">✕<") == 1


def test_times_of_a_quick_run_become_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = write(tmp_path / "quick.jsonl", SCAN, data=TINY)
    assert report.main([str(quick), "--out", str(tmp_path / "out")]) == 2
    assert "quick" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_only_files_with_a_name_are_taken_by_themselves(tmp_path: Path) -> None:
    for name in ("run-20260101-100000", "xeon"):
        write(tmp_path / f"{name}.jsonl", SCAN)
    assert [path.name for path in report.named_files(tmp_path)] == ["xeon.jsonl"]


@pytest.mark.parametrize("power", [0.5, 1.0, 1.3])
def test_exponents_are_found(power: float) -> None:
    found = power_law([1, 2, 4, 8], [3 * size**power for size in (1, 2, 4, 8)])
    assert found == pytest.approx((power, 0.0), abs=1e-6)


def test_an_exponent_through_points_off_the_line_is_less_certain() -> None:
    near, far = (power_law([1, 2, 4, 8], [1, 2 * off, 4 / off, 8]) for off in (1.05, 1.5))
    assert 0 < near.error < far.error
