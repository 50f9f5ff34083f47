"""Settings that all tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Workers must run the interpreter of the tests, whatever `python3` means on this machine.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

# For the driver of every session that tests start, also in processes of their own. Short queries on few cores: the
# second compiler of a JVM would cost more than its code saves (a fifth of the time). Without it, it reserves a fifth of
# the usual memory for code, and what Spark generates for hundreds of queries fills it: code is thrown out and compiled
# anew. Its concurrent collector marks the whole heap whenever Spark allocates a page.
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"

_OF_SESSIONS = ("extension", "spark")
"""Folders whose tests share a Spark session, in the order in which one process may run them: a JVM that was started
without the extension cannot load it any more."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in its own hook of this name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell which tests stay together where they run in several processes: those of one session, else those of one file.

    Processes take groups in the order of tests: both sessions first, then what starts sessions of its own, and the
    many short files last, so that no process is left with something long when the others are done.
    """
    if os.environ.get("SPARKEXT_TEST_EXTENSION") == "1":
        return  # a few files of one session: every process starts it, and takes test by test
    here = Path(__file__).parent
    ranks = {}
    for item in items:
        path = item.path.relative_to(here)
        of_session = path.parts[0] in _OF_SESSIONS
        shared = of_session and "spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group(path.parts[0] if shared else str(path)))
        ranks[item] = 0 if shared else 1 if of_session else 2 if len(path.parts) == 1 else 3
    items.sort(key=ranks.__getitem__)
