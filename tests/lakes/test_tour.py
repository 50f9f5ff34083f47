"""The tour runs unchanged on both formats, and workers read everything that it joins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lakes.conftest import MINOR
from tests.lakes.formats import formats_of, packages_locked

TOUR = Path(__file__).parents[2] / "examples" / "lakes.py"


def test_the_tour() -> None:
    if len(formats_of(MINOR)) < 2:
        pytest.skip(f"not both formats have a release for Spark {MINOR}")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with packages_locked():
        ran = subprocess.run([sys.executable, TOUR], capture_output=True, text=True, env=environment, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = ran.stdout.splitlines()
    assert [line.partition(" rows, scan=fused")[0] for line in told] == [
        "orders: 100,000",
        "orders: 90,000",
        "ice.shop.orders: 100,000",
        "ice.shop.orders: 90,000",
        "orders, before: 100,000",
        "ice.shop.orders, merged: 90,100",
    ], ran.stdout
