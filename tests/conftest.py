"""Settings that all tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Workers must run the interpreter of the tests, whatever `python3` means on this machine.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

_ONE_SESSION = ("extension", "spark")
"""Folders whose tests share a Spark session, and so a process, where tests run in several."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell which tests stay together: those of one session, else those of one file."""
    here = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(here)
        shared = path.parts[0] in _ONE_SESSION and os.environ.get("SPARKEXT_TEST_EXTENSION") != "1"
        item.add_marker(pytest.mark.xdist_group(path.parts[0] if shared else str(path)))
