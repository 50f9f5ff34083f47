"""Result files: a line with the facts of machine and versions, then a line for each contestant of each table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.report.names import is_scaled

TINY = "tiny: shows that cases work, and no times"
"""The value of the fact `data` in results of quick runs."""


class Key(NamedTuple):
    """Identifies a table of results. All contestants of a table do the same work."""

    case: str
    part: str
    scale_factor: float
    threads: int

    @property
    def suite(self) -> str:
        """The suite of the case."""
        return self.case.split(".")[0]

    def __str__(self) -> str:
        part = f", {self.part}" if self.part else ""
        scale = f", sf {self.scale_factor:g}" if is_scaled(self.case) else ""
        return f"{self.case}{part}{scale}, {self.threads} thread{'s' * (self.threads > 1)}"


@dataclass(frozen=True)
class Timed:
    """All runs of one contestant, in seconds. `ours`: this package; `floor`: only a part of the job was done."""

    key: Key
    contestant: str
    ours: bool
    floor: bool
    rows: int
    seconds: tuple[float, ...]
    values: dict[str, Any]

    @property
    def engine(self) -> str:
        """The name of the contestant without its form."""
        return self.contestant.split(",")[0]


@dataclass(frozen=True)
class Results:
    """One file: the facts, the timed contestants, and all other lines as they are."""

    name: str
    facts: dict[str, str]
    timed: list[Timed] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    def tables(self) -> dict[Key, list[Timed]]:
        """Return the contestants of each table, in the order of the file; the last line of a contestant counts."""
        found: dict[Key, dict[str, Timed]] = {}
        for timed in self.timed:
            found.setdefault(timed.key, {})[timed.contestant] = timed
        return {key: list(each.values()) for key, each in found.items()}


def read(path: Path) -> Results:
    """Read a result file. If it has several runs, the facts are from the first run, with the commits of all.

    Raises
    ------
    ValueError
        A line is not JSON, or there are no facts.
    """
    results = Results(path.stem, {})
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        for name, value in line.pop("facts", {}).items():  # a file has several such lines if runs were appended
            known = results.facts.setdefault(name, value)
            if name == "commit" and value not in known:
                results.facts[name] = f"{known}, {value}"
        if "contestant" in line and isinstance(line.get("seconds"), list):
            results.timed.append(_timed(line))
        elif line.keys() & {"case", "part"}:  # lines of a study have a part but no case
            results.others.append(line)
    if not results.facts:
        raise ValueError(f"{path} does not begin with the facts of machine and versions")
    return results


def _timed(line: dict[str, Any]) -> Timed:
    return Timed(
        Key(line["case"], line.get("part", ""), line["scale_factor"], line["threads"]),
        line["contestant"],
        line["ours"],
        line.get("floor", False),
        line["rows"],
        tuple(line["seconds"]),
        line,
    )


def merged(files: Sequence[Results]) -> dict[Key, list[Timed]]:
    """Return the tables of several files; if two files have the same table, the later file counts."""
    found: dict[Key, list[Timed]] = {}
    for results in files:
        found.update(results.tables())
    return found
