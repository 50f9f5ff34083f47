"""The table of environments in which the tests have run, from the records of `tests/support/record.py`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparkext.wording import format_markdown_table

RECORDS = Path(__file__).parents[1] / "support.jsonl"
_OTHER_OUTCOMES = {"failed": "**failed**", "skipped": "skipped"}

SUBJECTS = {
    "plain joins and SQL": ("extension",),
    "transforms": ("api",),
    "joins of streams": ("streaming",),
    "Delta Lake and Iceberg": ("lakes",),
    "scans": ("parquet",),
    "build sides": ("build_sides",),
    "memory": ("memory",),
    "files on disk": ("storage",),
    "pipelines of a task": ("engine", "partitioned", "predicates"),
    "shuffles": ("shuffle",),
    "rows and expressions": ("expressions", "rows"),
    "planners": ("plans",),
    "kernels": ("kernels",),
    "random queries": ("fuzz",),
    "reports": ("reports",),
}
"""The folders of tests for each subject, starting with those that depend most on Spark. Others do not depend on it."""


def list_folders() -> list[str]:
    """Return the folders of tests that depend on Spark, in the order of the table."""
    return [folder for folders in SUBJECTS.values() for folder in folders]


def page() -> str:
    """Return a table with a row for each subject and a column for each Spark version."""
    records = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    heads = [f"Spark {record['spark']}" for record in records]
    rows = []
    for subject, folders in SUBJECTS.items():
        named = ", ".join(f"`tests/{folder}`" for folder in folders)
        rows.append([f"{subject} ({named})", *(_describe_counts(record["folders"], folders) for record in records)])
    rows.append(["on", *(_environment(record) for record in records)])
    return format_markdown_table(["tests that passed", *heads], rows)


def _describe_counts(recorded: Mapping[str, Mapping[str, int]], folders: Sequence[str]) -> str:
    if not recorded.keys() & set(folders):
        return "not run"
    counts = sum((Counter(recorded.get(folder, {})) for folder in folders), Counter[str]())
    others = [f"{counts[outcome]:,} {text}" for outcome, text in _OTHER_OUTCOMES.items() if counts[outcome]]
    return ", ".join([f"{counts['passed']:,}", *others])


def _environment(record: dict[str, Any]) -> str:
    packages = ", ".join(f"{package} {version}" for package, version in record["packages"].items())
    return f"{record['date']}: Python {record['python']}, {record['system']}, {packages}"
