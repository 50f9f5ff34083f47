"""The examples with streams run as they are: every hit is found once, and no cash is spent twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def said(name: str) -> list[str]:
    """What an example prints."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, env=environment, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.splitlines()


def test_only_the_loop_overspends() -> None:
    loop, *_, queries = said("trading.py")
    amounts = [
        [float(number.replace(",", "")) for number in re.findall(r"[\d,]{7,}", line)] for line in (loop, queries)
    ]
    (wasted, cash), (spent, _) = amounts
    assert 0.7 * cash < spent <= cash < wasted


def test_the_tour() -> None:
    *batches, last = said("streams.py")
    assert last.endswith("a join of all rows gives the same: True") and not last.startswith("0 hits"), batches
    assert "stopped, and started again" in batches and len(batches) > 3
