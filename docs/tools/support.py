"""The table of environments in which the tests have run, from the records of `tests/support/record.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parents[1] / "support.jsonl"

ROOMS = {
    "extension": "plain joins and SQL",
    "exchange": "partitioned joins",
    "lakes": "Delta Lake and Iceberg",
    "transforms": "transforms",
    "streams": "joins of streams",
    "parquet": "scans",
    "build_sides": "build sides",
    "memory": "memory",
    "storage": "files on disk",
    "worker": "pipelines of a task",
    "rows": "rows",
    "plans": "planners",
    "kernels": "kernels",
    "fuzz": "random queries",
    "reports": "reports",
}
"""Subjects of the test packages, starting with those that depend most on Spark. Other packages do not depend on it."""


def page() -> str:
    """Return a table with a row for each test package (`room` in the code) and a column for each Spark version."""
    records = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    heads = [f"Spark {record['spark']}" for record in records]
    rows = [
        [f"{about} (`tests/{room}`)", *(_told(record["rooms"].get(room)) for record in records)]
        for room, about in ROOMS.items()
    ]
    rows.append(["on", *(_environment(record) for record in records)])
    lines = [["tests that passed", *heads], ["---"] * (len(heads) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _told(counts: dict[str, int] | None) -> str:
    if counts is None:
        return "not run"
    passed, skipped, failed = (counts.get(outcome, 0) for outcome in ("passed", "skipped", "failed"))
    others = [f"{count:,} {what}" for count, what in ((failed, "**failed**"), (skipped, "skipped")) if count]
    return ", ".join([f"{passed:,}", *others])


def _environment(record: dict[str, Any]) -> str:
    packages = ", ".join(f"{package} {version}" for package, version in record["packages"].items())
    return f"{record['date']}: Python {record['python']}, {record['system']}, {packages}"
