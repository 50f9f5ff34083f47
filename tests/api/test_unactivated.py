"""Transforms and stream operators in a program whose virtual environment is not activated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.unactivated import unactivated

SCRIPT = Path(__file__).parent / "scripts" / "unactivated.py"


@pytest.mark.parametrize("session", ["classic", "connect"])
def test_functions_run_in_the_python_of_pipelines(session: str, tmp_path: Path) -> None:
    """In a Connect session, they are refused before a job, because the server chooses the Python of all functions."""
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), session, str(tmp_path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        cwd=tmp_path,
        env=unactivated(tmp_path),
    )
    assert ran.returncode == 0 and "all is well" in ran.stdout, ran.stdout + ran.stderr
