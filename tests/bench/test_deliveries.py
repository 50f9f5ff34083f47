"""Delivery modes that the bench compares with the engine's own: orders of calls, and the same rows in each mode."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench.data.workloads import many_to_many
from bench.engines import in_memory
from bench.engines.answers import answer_of
from bench.engines.deliveries import MODES, deliver_independently, deliver_sets, with_fixed_outputs
from bench.engines.from_files import run_task
from sparkext.engine import delivery
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.operator_budget import ARRAY_BYTES
from sparkext.engine.pipeline import Resources
from tests.engine.test_delivery import ALL, ITEMS, Calls, Recorded, check_last_items, fail, meeting
from tests.engine.test_pipeline import DEFAULTS, Case, make_table, rows_in_order, settings
from tests.oracle.pipelines import Reference, Step
from tests.oracle.rows import canonical_rows


def test_a_set_at_a_time_finishes_every_stage_before_the_next() -> None:
    recorded = Recorded([3, 2])
    given = deliver_sets(recorded.stages, iter(ITEMS), None)
    assert next(given) == "a00"
    assert recorded.asked == ["0:a"] * 3 + ["0:b"] * 3 + [
        f"1:{item}{made}" for item in ITEMS for made in range(3) for _ in range(2)
    ]
    assert ["a00", *given] == ALL


def test_a_set_at_a_time_in_parallel_keeps_the_order() -> None:
    with ThreadPoolExecutor(2) as pool:
        assert list(deliver_sets(Recorded([3, 2]).stages, ITEMS, pool)) == ALL


def test_independent_threads_process_items_through_all_stages() -> None:
    assert sorted(deliver_independently([meeting(), *Recorded([3, 2]).stages], ITEMS, 2)) == ALL


def test_threads_end_when_their_items_are_no_longer_requested() -> None:
    before = threading.active_count()
    given = deliver_independently([Calls(lambda item: iter([item] * 10_000))], ITEMS, 2)
    next(given)
    given.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


@pytest.fixture(params=["independent", "sets", "parallel sets"])
def order(request: pytest.FixtureRequest) -> Iterator[Callable[..., Iterator[Any]]]:
    with ThreadPoolExecutor(2) as pool:
        yield {
            "independent": partial(deliver_independently, threads=2),
            "sets": partial(deliver_sets, pool=None),
            "parallel sets": partial(deliver_sets, pool=pool),
        }[request.param]


def test_an_error_in_a_thread_is_raised_to_the_caller(order: Callable[..., Iterator[Any]]) -> None:
    with pytest.raises(ValueError, match=r"[ab]"):
        list(order([Calls(fail)], ITEMS))


def test_no_items_and_no_stages(order: Callable[..., Iterator[Any]]) -> None:
    for stages in ([], Recorded([2]).stages):
        for items in ([], ITEMS):
            expected = [f"{item}{made}" for item in items for made in range(2)] if stages else items
            assert sorted(order(stages, items)) == expected


def test_items_yielded_by_finish_go_through_later_stages(order: Callable[..., Iterator[Any]]) -> None:
    check_last_items(order)


def test_fixed_outputs_ignore_memory() -> None:
    fixed, resources = with_fixed_outputs(200_000, DEFAULTS, Resources(lambda: (0, "a limit")))
    assert (fixed.morsel_min_rows, fixed.morsel_max_rows, fixed.morsel_max_bytes) == (200_000, 200_000, ARRAY_BYTES)
    assert resources.headroom() is None


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize(("threads", "cores"), [("cooperative", 1), ("cooperative", 3), ("independent", 3)])
def test_every_mode_gives_the_same_rows(name: str, threads: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_LEAST_PART_ROWS", 2)
    for how in ("inner", "left", "right", "full"):
        generator = random.Random(17)
        tables = [make_table(generator, size, 0.2) for size in (60, 30, 20)]
        steps = [Step(how, [(Reference(0, 1), 1)], [False]), Step("left", [(Reference(1, 3), 3)], [True])]
        case = Case(tables, steps, [Reference(source, 0) for source in range(3)])
        eight = settings(morsel_max_rows=8, morsel_min_rows=1)
        own, resources = MODES[name].apply(eight, Resources(lambda: None, cores=cores), threads == "independent")
        pipeline = create_pipeline(case.spec, case.builds, case.schema, own, resources)
        got = rows_in_order(pipeline.run(case.source([10, 30], with_settings=eight)), case.schema, own.morsel_max_rows)
        expected = canonical_rows(case.arrow_values(case.expected))
        if cores > 1:
            assert sorted(canonical_rows(got)) == sorted(expected)
        else:
            assert canonical_rows(got) == expected
        if name == "tuple":
            assert pipeline.metrics.batches_out == len(expected)


@pytest.mark.parametrize("name", MODES)
def test_a_task_over_files_gives_all_rows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the folder of cached indexes
    workload = many_to_many(probe_rows=50, build_rows=60, fan_out=3)
    for table, rows in workload.tables.items():
        pq.write_table(rows, tmp_path / f"{table}.parquet")
    empty = replace(workload, tables={table: rows.schema.empty_table() for table, rows in workload.tables.items()})
    batches = workload.tables["probe"].to_batches()
    found = list(run_task(batches, empty, tmp_path, MODES[name]))
    assert sum(batch.num_rows for batch in found) == 150
    assert (len(found) == 150) == (name == "tuple")
    assert answer_of(found, workload.schema) == answer_of(in_memory.run(workload, threads=1), workload.schema)
