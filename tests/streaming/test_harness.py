"""Thirty random streaming queries, each compared with one batch over the same rows; and the harness itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from tests.stream_harness.cases import KINDS, Case, make_case
from tests.stream_harness.columns import WAYS
from tests.stream_harness.hunt import Hunt
from tests.stream_harness.nodes import Emitted, History, place
from tests.stream_harness.operators.nearest import NearestJoin
from tests.stream_harness.operators.order import Ordered
from tests.stream_harness.reproducing import reproducer
from tests.stream_harness.running import Verdict, described
from tests.stream_harness.shrinking import shrunk
from tests.stream_harness.tally import properties

CASES = 30


def test_random_queries(spark: SparkSession, tmp_path: Path) -> None:
    """Fewer batches than `python -m tests.stream_harness` draws."""
    hunt = Hunt(seed=2, quick=True)
    hunt.run(spark, tmp_path, range(CASES), threads=3)
    assert not hunt.found, "\n\n".join(hunt.found)
    tally = hunt.tally
    assert tally.queries == CASES and tally.rows > 500 and tally.late_rows > 20, tally
    assert {kind.partition(" ")[0] for kind in tally.kinds} == {"join", "nearest", "ordered", "cql"}, tally
    wanted = ("restarts", "odd checkpoints", "filled columns", "restarts from one partition to several, or back")
    assert all(tally.properties[name] > 3 for name in wanted), tally


def drawn(count: int = 300) -> list[Case]:
    return [make_case(5, number) for number in range(count)]


def test_a_number_stands_for_the_same_case() -> None:
    assert drawn(20) == drawn(20)


def test_cases_cover_every_dimension() -> None:
    cases = drawn()
    assert {case.kind for case in cases} == {*KINDS}
    found = {name for case in cases for name in properties(case)}
    assert {f"{way} columns" for way in WAYS if way != "stored"} < found
    assert {"restarts", "sinks that fail", "odd checkpoints", "several files in a batch"} < found
    assert {len(stream.sources) for case in cases for stream in case.streams} == {1, 2}
    assert all(any(letter in case.checkpoint for case in cases) for letter in "#?% ")


def test_what_is_written_down_is_the_case() -> None:
    for case in drawn(20):
        names: dict[str, object] = {"__name__": "written"}
        exec(reproducer(case, Verdict("rows", "one\nor another"), "a command"), names)
        assert repr(names["CASE"]) == repr(case)


def emitted(case: Case) -> tuple[History, list[Emitted]]:
    """Return the right result of a case, in one batch and partition, for an operator whose oracle needs no Spark."""
    thresholds = (0,) * max(len(source.batches) for stream in case.streams for source in stream.sources)
    history = History(cast("SparkSession", None), case.streams, thresholds, 1 << 60)
    rows = case.query.expected(history, timed=True)
    assert isinstance(case.query, NearestJoin | Ordered)
    if not isinstance(case.query, Ordered) or case.query.late is None:
        return history, [Emitted(0, 0, row) for row in rows]
    late = [dict(enumerate(row)) for row in history.late(0)]
    nothing = (None,) * len(case.query.columns)
    return history, [*(Emitted(0, 0, (*row, None)) for row in rows), *(Emitted(0, 0, (*nothing, one)) for one in late)]


@pytest.mark.parametrize("kind", ["nearest", "ordered"])
def test_an_oracle_finds_wrong_rows(kind: str) -> None:
    cases = [case for case in drawn() if case.kind == kind]
    looked_at = 0
    for case in cases:
        history, rows = emitted(case)
        assert not case.query.difference(history, rows)
        if len(rows) < 3:
            continue
        looked_at += 1
        at, column = 0, next(at for at, one in enumerate(case.query.columns) if one.name != case.query.time)
        twice, missing = [*rows, rows[at]], [*rows[:at], *rows[at + 1 :]]
        other = [*missing, replace(rows[at], row=(*rows[at].row[:column], "another", *rows[at].row[column + 1 :]))]
        for wrong in (twice, missing, other):
            assert case.query.difference(history, wrong), case
    assert looked_at > 10


def test_an_oracle_finds_rows_in_another_order_and_partition() -> None:
    looked_at = 0
    for case in drawn():
        if case.kind != "ordered" or not isinstance(case.query, Ordered) or case.query.order_key:
            continue
        history, rows = emitted(replace(case, query=replace(case.query, late=None)))
        if len({row.row[place(case.query.columns, case.query.time or "")] for row in rows}) > 3:
            looked_at += 1
            ordered = replace(case.query, late=None)
            assert "not in the order of time" in ordered.difference(history, rows[::-1])
            apart = [*rows[:-1], replace(rows[-1], partition=1)]
            assert "several partitions" in ordered.difference(history, apart)
    assert looked_at > 3


def test_a_case_shrinks_to_the_column_that_is_wrong() -> None:
    def has_literal(case: Case) -> bool:
        return any(one.way == "literal" for stream in case.streams for s in stream.sources for one in s.derivations)

    case = max(filter(has_literal, drawn()), key=lambda case: len(repr(case)))
    smaller = shrunk(case, has_literal)
    assert has_literal(smaller) and not smaller.settings and smaller.checkpoint == "checkpoint"
    derived = [
        one for stream in smaller.streams for s in stream.sources for one in s.derivations if one.way != "stored"
    ]
    assert len(derived) == 1 and len(smaller.runs) == 1
    assert not any([*stream.rows()] for stream in smaller.streams)


def test_an_error_is_described_by_its_causes_without_stacks_and_plans() -> None:
    error = RuntimeError(
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: it is full. SQLSTATE: XXKST\n"
        "  +- ~Project [a AS Error: b]\n"
        '  File "/somewhere/sparkext/streaming/ordered/partition.py", line 173, in _due\n'
        ": org.apache.spark.SparkException: Exception thrown in awaitResult:\n"
        "\tat org.apache.spark.Error: x\n"
        "Caused by: java.io.IOException: no space left"
    )
    assert described(error).splitlines() == [
        "STREAM_FAILED",
        "it is full. SQLSTATE: XXKST",
        ": org.apache.spark.SparkException: Exception thrown in awaitResult:",
        "Caused by: java.io.IOException: no space left",
        "sparkext/streaming/ordered/partition.py 173 _due",
    ]
