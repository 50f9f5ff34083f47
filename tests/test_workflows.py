"""The public CI: every test belongs to one job, and the matrix has the Spark and Python versions of `make versions`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]


def test_every_test_file_belongs_to_one_job() -> None:
    parts = JOBS["test"]["strategy"]["matrix"]["include"]
    named = [path for part in parts for pattern in part["tests"].split() for path in ROOT.glob(pattern)]
    files = [file for path in named for file in (path.rglob("test_*.py") if path.is_dir() else [path])]
    assert Counter(files) == Counter((ROOT / "tests").rglob("test_*.py"))


def test_the_matrix_is_that_of_make_versions() -> None:
    pattern = r'nox\.param\("([\d.]+)", "([\d.]+)", \w+, id="spark-[\d.]+"\)'
    expected = re.findall(pattern, (ROOT / "noxfile.py").read_text(encoding="utf-8"))
    matrix = JOBS["versions"]["strategy"]["matrix"]["include"]
    assert [(entry["python"], entry["spark"]) for entry in matrix] == expected and expected
