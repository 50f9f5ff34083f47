"""The archived results of benchmarks, by case: the source of every figure on the pages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from bench.report.result_files import Key, Results, Timed, merged, read
from bench.report.summary import named_files

RESULTS = Path(__file__).parents[3] / "bench" / "results"


class MissingResultError(Exception):
    """No archived file has results of a case; `command` measures them."""

    def __init__(self, case: str, scale_factor: float = 1.0) -> None:
        factor = "" if scale_factor == 1 else f" --sf {scale_factor:g}"
        self.command = f"python -m bench {case}{factor}"
        super().__init__(f"bench/results has nothing of {case}: {self.command}")


class Archive:
    """The results of several files; if two files have the same table, the later file counts."""

    def __init__(self, files: Iterable[Results]) -> None:
        self._files = sorted(files, key=lambda results: results.facts.get("date", ""))
        self._tables = merged(self._files)

    @property
    def cases(self) -> set[str]:
        """The cases with results."""
        named = {line["case"] for results in self._files for line in results.others if "case" in line}
        return named | {key.case for key in self._tables}

    def table(self, key: Key) -> list[Timed]:
        """Return the contestants of a table.

        Raises
        ------
        MissingResultError
            The archive has no such table.
        """
        if key not in self._tables:
            raise MissingResultError(key.case, key.scale_factor)
        return self._tables[key]

    def tables(self, case: str, scale_factor: float = 1.0) -> dict[str, list[Timed]]:
        """Return the tables of a case at a scale factor, by part.

        Raises
        ------
        MissingResultError
            The archive has none.
        """
        found = {
            key.part: table
            for key, table in self._tables.items()
            if key.case == case and key.scale_factor == scale_factor
        }
        if not found:
            raise MissingResultError(case, scale_factor)
        return found

    def lines(self, case: str, scale_factor: float = 1.0) -> list[dict[str, Any]]:
        """Return the lines of a case that are not timings, from the latest file with such lines.

        Raises
        ------
        MissingResultError
            The archive has none.
        """
        found: list[dict[str, Any]] = []
        for results in self._files:
            lines = [line for line in results.others if line.get("case") == case]
            found = [line for line in lines if line["scale_factor"] == scale_factor] or found
        if not found:
            raise MissingResultError(case, scale_factor)
        return found


@cache
def archive() -> Archive:
    """Return the archive of bench/results."""
    return Archive(read(path) for path in named_files(RESULTS))
