"""The tour of two live streams runs as it is, and finds every hit once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOUR = Path(__file__).parents[2] / "examples" / "streams.py"


def test_the_tour() -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run([sys.executable, TOUR], capture_output=True, text=True, env=environment, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    *batches, last = ran.stdout.splitlines()
    assert last.endswith("a join of all rows gives the same: True") and not last.startswith("0 hits"), ran.stdout
    assert "stopped, and started again" in batches and len(batches) > 3
