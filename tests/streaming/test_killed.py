"""Executors and drivers of a streaming query are killed: in the end, each row has been written exactly once."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.cluster import ENCRYPTED, environment, running
from tests.support.feeds import POINTS, SPANS, Feed, points, spans
from tests.support.waiting import wait_until

SCRIPT = Path(__file__).parent / "scripts" / "query_that_is_killed.py"
BATCHES = 3

pytestmark = [pytest.mark.timeout(540), pytest.mark.xdist_group("killed")]


@pytest.mark.parametrize(
    ("query", "least"),
    [
        ("join", 50),
        ("order", 50),
        pytest.param(
            "cql", 10, marks=pytest.mark.whole(reason="minutes; its rows take the tasks and the state of `ordered`")
        ),
    ],
)
def test_every_row_comes_out_once(spark: SparkSession, query: str, least: int, tmp_path: Path) -> None:
    draw = random.Random(1)
    left, right = (Feed(spark, tmp_path / side, schema) for side, schema in (("left", POINTS), ("right", SPANS)))
    for batch in range(BATCHES):
        left.add(points(draw, 60, 10 * batch))
        right.add(spans(draw, 60, 10 * batch))
    for name in ("marks", "driver", "cluster"):
        (tmp_path / name).mkdir()
    with running(tmp_path / "cluster", 2, 1) as cluster:
        for commits in (1,):
            driver = started(query, cluster.master, tmp_path)
            wait_for(tmp_path / "checkpoint" / "commits", commits, driver)
            driver.kill()
            driver.wait()
        driver = started(query, cluster.master, tmp_path)
        said, complained = driver.communicate(timeout=240)
    assert driver.returncode == 0, said + complained
    told = re.search(r"^all (\d+) rows are well$", said, re.MULTILINE)
    assert told and int(told[1]) > least
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} >= {"sending killed", "joining killed"}


def started(query: str, master: str, folder: Path) -> subprocess.Popen[str]:
    secret = ",".join(f"{key}={value}" for key, value in ENCRYPTED.items())
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), query, master, str(folder), secret],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(folder / "driver", PYSPARK_PYTHON=sys.executable),
    )


def wait_for(commits: Path, count: int, driver: subprocess.Popen[str]) -> None:
    """Wait until `count` batches have been committed, or the query has ended."""
    wait_until(
        lambda: driver.poll() is not None or (commits.exists() and len([*commits.glob("[0-9]*")]) >= count),
        f"{count} batches are committed",
        seconds=240,
    )
    assert driver.poll() is None, driver.communicate()
