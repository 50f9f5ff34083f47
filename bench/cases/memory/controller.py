"""The output-size controller: its cost, whether a fixed size is better with ample memory, and whether the controller
follows the limits of scarce memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from bench.data.workloads import Workload
from bench.harness import Bench, Case, measure, report, seconds_of, step, verify
from sparkext.wording import format_table

NOTES = """\
Measured: three TPC-H joins, and a join in which each of 2 M rows has 10 matches, over Arrow tables in memory on one
thread, including the building of indexes. cost.files reads the tables from Parquet files.
best-size: adaptive budgets are compared with outputs of fixed sizes, from 1,024 rows to 1 M.
cost: the time within calls of the controller, including the reading of the headroom, as a share of the time of the run.
follow: an exploding join runs in its own process, whose memory limit is cut and restored meanwhile. Every decision of
the controller is recorded, and drawn by `python -m bench report`."""

SIZES = tuple(1 << power for power in range(10, 21, 2))


def cases() -> list[Case]:
    """Return the cases: following memory, and best size and cost on two workloads each."""
    from bench.cases.memory import follow

    found = [
        Case("controller.follow.group", "the limit falls, a neighbour takes memory", follow.run_group, scaled=False),
        Case("controller.follow.address-space", "the limit falls", follow.run_address_space, scaled=False),
    ]
    for name in ("clustered", "many-to-many"):
        found.append(
            Case(f"controller.best-size.{name}", "adaptive against fixed sizes", partial(_sizes, name), threads=1)
        )
        found.append(Case(f"controller.cost.{name}", "its share of the time", partial(_cost, name), threads=1))
    found.append(Case("controller.cost.files", "its share of the time, from Parquet files", _cost_of_files, threads=1))
    return found


def _workload(name: str, bench: Bench) -> Workload:
    from bench.data import workloads

    with step("loading"):
        if name == "many-to-many":
            return workloads.many_to_many(2_000_000, 200_000, 10)
        return workloads.tpch(bench.scale_factor, bench.data)


def _sizes(name: str, bench: Bench) -> None:
    from bench.cases.kernels.pipelines import Form, contestant_of
    from bench.engines import in_memory

    workload = _workload(name, bench)
    sizes = {"adaptive": None, **{f"{rows:,} rows": rows for rows in SIZES}}
    forms = [Form(label, "", partial(in_memory.run, workload, 1, fixed_rows=rows)) for label, rows in sizes.items()]
    contestants = [replace(contestant_of(form, workload), ours=form.engine == "adaptive") for form in forms]
    verify(contestants)
    report(bench, measure(bench, contestants), workload.tables[workload.probe].num_rows)


def _cost(name: str, bench: Bench) -> None:
    from bench.engines import in_memory

    workload = _workload(name, bench)
    _share(bench, lambda: in_memory.run(workload, threads=1))


def _cost_of_files(bench: Bench) -> None:
    from bench.engines import from_files
    from sparkext.cli.tpch import ensure_tables

    workload = _workload("clustered", bench)
    folder = ensure_tables(bench.scale_factor, bench.data)
    _share(bench, lambda: from_files.run(workload, folder, threads=1))


def _share(bench: Bench, run: Callable[[], Iterator[pa.RecordBatch]]) -> None:
    """Print and record the share of a run's time that is spent in the controller."""
    from bench.cases.kernels.pipelines import consume

    consume(run())
    table = []
    for number in range(bench.runs):
        with step(f"run {number + 1} of {bench.runs}"), _timed_controller() as spent:
            whole = seconds_of(lambda: consume(run()))
        table.append(
            [
                str(number + 1),
                f"{whole:.3f}",
                str(spent["calls"]),
                f"{spent['seconds'] * 1e3:.2f}",
                f"{spent['seconds'] / whole:.2%}",
            ]
        )
        bench.record(seconds=whole, controller_seconds=spent["seconds"], calls=spent["calls"])
    print("\n" + format_table(["run", "whole s", "calls", "controller ms", "share"], table) + "\n")


@contextmanager
def _timed_controller() -> Iterator[dict[str, Any]]:
    """Add up the time within the controller's methods, the cost of measuring included."""
    from sparkext.plans.adaptive.output_size import OutputSizeController

    spent: dict[str, Any] = {"seconds": 0.0, "calls": 0}

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                spent["seconds"] += time.perf_counter() - started
                spent["calls"] += 1

        return call

    names = ("budget", "observe", "most_bytes")
    originals = {name: getattr(OutputSizeController, name) for name in names}
    for name, method in originals.items():
        setattr(OutputSizeController, name, timed(method))
    try:
        yield spent
    finally:
        for name, method in originals.items():
            setattr(OutputSizeController, name, method)
