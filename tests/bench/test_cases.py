"""The benchmark harness: listing and selection of cases, and that a wrong answer is never timed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import all_cases
from bench.cases.queries import tpcds
from bench.harness import Bench, Contestant, WrongAnswerError, measure, report, verify
from bench.quick import QUICK
from bench.report.names import NAMES
from bench.report.result_files import TINY, read

ROOT = Path(__file__).parents[2]


def test_what_is_quick_and_what_is_named_exists() -> None:
    cases = all_cases()
    assert set(QUICK) | set(NAMES) <= set(cases)
    assert not any(cases[name].named for name in QUICK)


def test_the_queries_of_tpcds() -> None:
    assert len(tpcds.ALL_QUERIES) == 103
    assert set(tpcds.TINY_QUERIES) <= set(tpcds.QUERIES) <= set(tpcds.ALL_QUERIES)
    assert str(len(tpcds.QUERIES)) in tpcds.cases()[0].title


def test_a_wrong_answer_is_not_timed() -> None:
    right, wrong = (
        Contestant(name, lambda: None, lambda answer=answer: answer) for name, answer in [("a", 1), ("b", 2)]
    )
    with pytest.raises(WrongAnswerError, match=r"a  1\n +b  2"):
        verify([right, wrong])


def test_contestants_take_turns_and_are_recorded(tmp_path: Path) -> None:
    said: list[str] = []
    contestants = [Contestant(name, lambda name=name: said.append(name), lambda: 0) for name in ("sparkext", "b")]
    results = tmp_path / "results.jsonl"
    results.write_text(json.dumps({"facts": {"cores": "2"}}) + "\n")
    bench = Bench("engines.clustered", 1.0, 2, 3, tmp_path, results)
    timings = measure(bench, contestants)
    assert said == ["sparkext", "b"] * 4  # a warm-up, then three runs
    report(bench, timings, 10, part="first")
    [table] = read(results).tables().values()
    assert [(timed.contestant, len(timed.seconds), timed.key.part) for timed in table] == [
        ("sparkext", 3, "first"),
        ("b", 3, "first"),
    ]


def test_every_quick_case_runs(tmp_path: Path) -> None:
    """Run the cases of `make bench-quick`. Their answers are checked; their times are not."""
    results = tmp_path / "results.jsonl"
    command = [
        sys.executable,
        "-m",
        "bench",
        "--quick",
        "--json",
        str(results),
        "--data",
        str(tmp_path / "tpch"),
    ]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert read(results).facts["data"] == TINY
    headings = re.findall(r"^([a-z_]+\.[a-z.-]+): ", ran.stdout, re.MULTILINE)
    assert set(headings) == set(QUICK)
    found = {(key.case, timed.engine) for key, table in read(results).tables().items() for timed in table}
    assert {engine for case, engine in found if case == "engines.strings"} == {
        "sparkext",
        "DuckDB",
        "Polars",
        "Acero",
        "DataFusion",
    }
