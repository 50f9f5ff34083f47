"""`doctor` in real environments: its verdict, and that every check is reported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from sparkext.cli.doctor import LOCAL_CHECKS
from sparkext.cli.session_checks import SESSION_CHECKS
from tests.support.unactivated import unactivated


def diagnosed(environment: dict[str, str], folder: Path) -> tuple[int, dict[str, str], str]:
    """Return the exit status, the findings by their title, and the verdict."""
    ran = subprocess.run(
        [sys.executable, "-m", "sparkext", "doctor"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        cwd=folder,
        env=environment,
    )
    lines = ran.stdout.splitlines()
    findings = {title: line for line in lines for title in re.findall(r"^(?:ok|warn|FAIL) +(.+?)  +", line)}
    assert {*LOCAL_CHECKS, *SESSION_CHECKS} <= findings.keys(), ran.stdout + ran.stderr
    return ran.returncode, findings, lines[-1]


def test_an_environment_that_is_not_activated(tmp_path: Path) -> None:
    status, findings, verdict = diagnosed(unactivated(tmp_path), tmp_path)
    assert status == 0 and verdict.startswith("Joins can run here"), findings
    assert sys.executable in findings["worker python"]
    assert findings["a join"].startswith("ok") and "planned by the extension" in findings["a join"]


def test_a_python_without_packages(tmp_path: Path) -> None:
    environment = {**unactivated(tmp_path), "PYSPARK_PYTHON": "python3"}
    status, findings, verdict = diagnosed(environment, tmp_path)
    assert status == 1 and verdict.endswith("Joins cannot run until this is fixed."), verdict
    missing = findings["worker imports"]
    assert missing.startswith("FAIL") and "No module named 'numba'" in missing
    assert os.path.realpath(sys.executable) in missing and "spark.sparkext.python" in missing


def test_no_java(tmp_path: Path) -> None:
    environment = {**unactivated(tmp_path), "JAVA_HOME": str(tmp_path)}
    status, findings, verdict = diagnosed(environment, tmp_path)
    assert status == 1 and verdict.startswith("1 check failed: java.")
    assert all("not checked: fix java first" in findings[title] for title in SESSION_CHECKS)
