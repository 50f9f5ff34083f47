"""The demo as a user runs it, in its own process, at TPC-H scale factor 0.01."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = 60_175  # lineitem at scale factor 0.01; every key is a foreign key, so that each row has one match

# The demo with wrong plans instead of sparkext's. One drops a row. The other keeps the number of rows, but replaces the
# values of one order by nulls, which only the checksums can detect.
WRONG_PLANS = """
import sys
from pyspark.sql import functions as F
from sparkext.cli import demo
from sparkext.__main__ import main

def drops_a_row(tables):
    return demo.join_by_default(tables).limit(ROWS - 1)

def changes_a_value(tables):
    changed = F.when(F.col("l_orderkey") != 1, F.col("p_size"))
    return demo.join_by_default(tables).withColumn("p_size", changed)

demo.join_by_hints, demo.join_in_map_in_arrow = drops_a_row, changes_a_value
print("exit status", main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the demo's tables, which the first test generates and the next ones reuse."""
    return tmp_path_factory.mktemp("data")


def run_demo(data: Path, *python: str) -> subprocess.CompletedProcess[str]:
    options = ["demo", "--sf", "0.01", "--runs", "1", "--cores", "2", "--data", str(data)]
    return subprocess.run(
        [sys.executable, *python, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_demo_verifies_and_prints_its_table(data: Path) -> None:
    ran = run_demo(data, "-m", "sparkext")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = [line for line in ran.stdout.splitlines() if f" {ROWS:,} " in line]
    ours = ("sparkext, through mapInArrow", "sparkext, with the extension")
    for plan in ("Spark, default plan", "Spark, broadcast hints", *ours):
        row = rf"{plan} +[\d.]+ +[\d.]+ - [\d.]+ +{ROWS:,} +[\d.]+ +[\d.]+x"
        assert any(re.fullmatch(row, line) for line in lines), ran.stdout
    assert "Verified: the plans return the same schema" in ran.stdout
    for build_side in ("orders", "supplier", "part"):
        assert build_side in ran.stdout
    assert "WARN" not in ran.stderr and "Stage" not in ran.stderr, ran.stderr


def test_a_difference_is_status_1_and_nothing_is_timed(data: Path) -> None:
    ran = run_demo(data, "-c", WRONG_PLANS.replace("ROWS", str(ROWS)))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    wrong = "sparkext, through mapInArrow and sparkext, with the extension"
    message = f"WRONG: {wrong} did not return the rows of Spark, default plan. Nothing was timed."
    assert message in ran.stdout, ran.stdout
    assert "exit status 1" in ran.stdout
    assert "median" not in ran.stdout
    assert "timing" not in ran.stderr
