"""The format of numbers and tables in reports and plans."""

from __future__ import annotations

import pytest

from sparkext.streaming.cql.language.queries import spell_delay
from sparkext.wording import format_count, format_markdown_table, format_ratio, format_table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.0, "0"),
        (2e-05, "0.00002"),
        (1.0, "1"),
        (1 / 3, "0.333"),
        (12.345, "12.3"),
        (999.4, "999"),
        (123456.7, "123,457"),
    ],
)
def test_ratios_have_no_exponent(value: float | None, text: str) -> None:
    assert format_ratio(value) == text


@pytest.mark.parametrize(
    ("microseconds", "text"), [(0, "ε"), (1, "0.000001 s"), (20, "0.00002 s"), (1_500_000, "1.5 s"), (10**7, "10 s")]
)
def test_delays_have_no_exponent(microseconds: int, text: str) -> None:
    assert spell_delay(microseconds) == text


def test_one_thing_has_no_plural() -> None:
    assert [format_count(number, "task") for number in (0, 1, 2, 1000)] == [
        "0 tasks",
        "1 task",
        "2 tasks",
        "1,000 tasks",
    ]


def test_tables() -> None:
    header, rows = ("name", "rows", "of"), [("a", "1,000", ""), ("longer", "2", "b")]
    assert format_table(header, rows, (0, 2)).splitlines() == [
        "name     rows  of",
        "------  -----  --",
        "a       1,000",
        "longer      2  b",
    ]
    assert format_markdown_table(header, rows).splitlines() == [
        "| name | rows | of |",
        "| --- | --- | --- |",
        "| a | 1,000 | |",
        "| longer | 2 | b |",
    ]
