"""Tables that compare contestants, with the spread of their runs, and wins and losses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.report.result_files import Key, Timed
from docs.tools.figures import forms
from docs.tools.figures.archive import Archive, MissingResultError
from sparkext.wording import format_markdown_table

Block = Callable[[Archive], str]
Form = Callable[[Timed], str]
_WIDEST = 3


@dataclass(frozen=True)
class Grid:
    """A row for each table of results, a column for each contestant.

    `columns`: a pattern for the contestant's whole name; if several contestants match, the fastest counts. A group of
    the pattern, the hint or setting that was used, is shown after the figure. `transposed`: contestants are rows.
    `over`: the column with which geometric means compare the other columns, as factors. `first`: the header of the
    column of labels. `compared`: whether sentences report wins and losses, for contestants that did the same work.
    """

    rows: Mapping[str, Key]
    columns: Mapping[str, str]
    form: Form = forms.median_seconds
    first: str = ""
    transposed: bool = False
    over: str = ""
    compared: bool = True

    def render(self, archive: Archive) -> str:
        """Return the table, without rows that have no results, and sentences on spreads, wins and losses."""
        found, missing = {}, []
        for label, key in self.rows.items():
            try:
                found[label] = self._picked(archive.table(key))
            except MissingResultError as error:
                missing.append(error)
        if not found:
            return not_measured(missing)
        cells = {(row, column): self._cell(found[row], column) for row in found for column in self.columns}
        rows, columns = [*found], [*self.columns]
        lines = [[row, *(cells[row, column] for column in columns)] for row in rows]
        if self.transposed:
            lines = [[column, *(cells[row, column] for row in rows)] for column in columns]
            lines = [line for line in lines if any(line[1:])]
        if self.over:
            factors = self._factors(found)
            means = (forms.factor(factors[name]) if name in factors else "" for name in columns)
            lines.append([f"times as fast as *{self.over}*, geometric mean", *means])
        parts = [
            format_markdown_table([self.first, *(rows if self.transposed else columns)], lines),
            _spreads([(f"{name}, {row}", timed) for row, picked in found.items() for name, timed in picked.items()]),
            self._verdicts(found) if self.compared else "",
            not_measured(missing),
        ]
        return "\n\n".join(filter(None, parts))

    def _picked(self, table: Sequence[Timed]) -> dict[str, Timed]:
        picked = {}
        for column, pattern in self.columns.items():
            forms_ = [timed for timed in table if re.fullmatch(pattern, timed.contestant)]
            if forms_:
                picked[column] = min(forms_, key=lambda timed: median(timed.seconds))
        return picked

    def _cell(self, picked: Mapping[str, Timed], column: str) -> str:
        if column not in picked:
            return ""
        match = re.fullmatch(self.columns[column], picked[column].contestant)
        variant = match[1] if match and match.groups() else None
        return f"{self.form(picked[column])}{f', {variant}' if variant else ''}"

    def picked(self, archive: Archive, row: str) -> dict[str, Timed]:
        """Return the contestant of each column in a row.

        Raises
        ------
        MissingResultError
            The row has no results.
        """
        return self._picked(archive.table(self.rows[row]))

    def factors(self, archive: Archive) -> dict[str, float]:
        """Return the speedup of each column over the column `over`, as geometric means.

        Raises
        ------
        MissingResultError
            A row has no results.
        """
        return self._factors({row: self.picked(archive, row) for row in self.rows})

    def counts(self, archive: Archive, name: str, other: str) -> tuple[int, int, int]:
        """Return the number of rows in which a contestant is faster than another, level with it, and slower.

        Raises
        ------
        MissingResultError
            A row has no results.
        """
        return _counts({row: self.picked(archive, row) for row in self.rows}, name, other)

    def _factors(self, found: Mapping[str, Mapping[str, Timed]]) -> dict[str, float]:
        ratios: dict[str, list[float]] = {}
        for picked in found.values():
            for name, timed in picked.items():
                ratio = median(picked[self.over].seconds) / median(timed.seconds)
                ratios.setdefault(name, []).append(ratio)
        return {name: forms.mean(found) for name, found in ratios.items()}

    def _verdicts(self, found: Mapping[str, Mapping[str, Timed]]) -> str:
        """Return the counts of rows in which our contestants are ahead of, level with, or slower than others."""
        ours = {name for picked in found.values() for name, timed in picked.items() if timed.ours}
        floors = {name for picked in found.values() for name, timed in picked.items() if timed.floor}
        sentences = []
        for name in (column for column in self.columns if column in ours):
            told = [
                said for other in self.columns if other not in ours | floors and (said := _verdict(found, name, other))
            ]
            if told:
                sentences.append(f"*{name}*: {'; '.join(told)}.")
        return "\n".join(sentences)


def _verdict(found: Mapping[str, Mapping[str, Timed]], name: str, other: str) -> str:
    counts = zip(("ahead", "level", "slower"), _counts(found, name, other), strict=True)
    told = [f"{word} in {count}" for word, count in counts if count]
    return f"against *{other}* {', '.join(told)}" if told else ""


def _counts(found: Mapping[str, Mapping[str, Timed]], name: str, other: str) -> tuple[int, int, int]:
    both = [(picked[name], picked[other]) for picked in found.values() if name in picked and other in picked]
    ahead = sum(max(our.seconds) < min(its.seconds) for our, its in both)
    slower = sum(min(our.seconds) > max(its.seconds) for our, its in both)
    return ahead, len(both) - ahead - slower, slower


def _spreads(shown: Sequence[tuple[str, Timed]]) -> str:
    """Return a sentence on the spreads of runs, relative to their medians: the median spread, and the widest."""
    widths = sorted(
        ((max(timed.seconds) - min(timed.seconds)) / median(timed.seconds), name, timed)
        for name, timed in shown
        if len(timed.seconds) > 1
    )
    if len(widths) < _WIDEST:
        return ""
    half = median(width for width, *_ in widths)
    widest = "; ".join(f"{name}, {forms.bounds(timed.seconds)}" for _, name, timed in reversed(widths[-_WIDEST:]))
    return f"Half of the spreads are above {half:.0%}. The widest: {widest}."


def table_of(header: Sequence[str], lines: Sequence[Callable[[], Sequence[str]]]) -> str:
    """Return a table of the lines that have results, followed by the commands that measure the missing lines."""
    found, missing = [], []
    for line in lines:
        try:
            found.append(line())
        except MissingResultError as error:
            missing.append(error)
    return "\n\n".join(filter(None, [format_markdown_table(header, found) if found else "", not_measured(missing)]))


def not_measured(missing: Sequence[MissingResultError]) -> str:
    """Return a sentence with the commands that measure missing results, or nothing if none is missing."""
    commands = dict.fromkeys(error.command for error in missing)
    return f"Not measured yet: {', '.join(f'`{command}`' for command in commands)}." if commands else ""
