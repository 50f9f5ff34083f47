"""The examples with streams run in an environment that is not activated: each hit once, and no cash is spent twice."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.unactivated import unactivated

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name: str, folder: Path) -> list[str]:
    """Return the lines that an example prints."""
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        env=unactivated(folder),
        cwd=folder,  # in the checkout, even a Python without packages would find sparkext
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.splitlines()


def test_only_the_loop_overspends(tmp_path: Path) -> None:
    loop, *_, queries = printed("trading.py", tmp_path)
    amounts = [
        [float(number.replace(",", "")) for number in re.findall(r"[\d,]{7,}", line)] for line in (loop, queries)
    ]
    (wasted, cash), (spent, _) = amounts
    assert 0.7 * cash < spent <= cash < wasted


def test_the_tour(tmp_path: Path) -> None:
    *batches, last = printed("streams.py", tmp_path)
    assert last.endswith("a join of all rows gives the same: True") and not last.startswith("0 hits"), batches
    assert "stopped, and started again" in batches and len(batches) > 3
