"""The cases of Spark Connect, in a process of their own: classic and Connect sessions cannot share one."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).parent
CASES = 29  # so that a case that is no longer collected is noticed


def test_the_cases_pass_through_connect(tmp_path: Path) -> None:
    told = tmp_path / "cases.xml"
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={told}", str(HERE / "connect_cases.py")]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        cwd=HERE.parent.parent,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    suite = ElementTree.parse(told).getroot().find("testsuite")
    assert suite is not None
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": CASES, "failures": 0, "errors": 0, "skipped": 0}, ran.stdout
