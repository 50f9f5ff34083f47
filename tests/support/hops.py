"""The modules that a probe batch and the rows of a stream join pass through, recorded while they run.

`python -m tests.support.hops` writes them to `docs/architecture.md`. A hop is a call into another module of `sparkext`;
a climb is a hop into a higher package. Calls into `kernels` and `plans` are left out: they call nothing of `sparkext`.
Calls within `memory` are left out, too: they depend on the time of the last measurement. Rows that a lower package
pulls from a generator, functions that it was given, and operators of values (`__hash__`) are no climbs.
"""

from __future__ import annotations

import gc
import inspect
import random
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
_OWN = re.compile(r"sparkext\.(?!kernels\.|plans\.)[\w.]+$")
_MEASURING = "sparkext.memory."
_LAYERS = re.compile(r'name = "packages import one way".*?layers = \[(.*?)\]', re.S)


@dataclass(frozen=True)
class Hop:
    """A call from one module to a function of another."""

    caller: str
    module: str
    function: str
    is_given: bool
    """Whether the function is a generator, a lambda or an operator."""

    def is_climb(self, layers: list[str]) -> bool:
        """Return whether the call leads to a higher package."""
        caller, module = (layers.index(name.split(".")[1]) for name in (self.caller, self.module))
        return module < caller and not self.is_given

    def __str__(self) -> str:
        """Return the hop as text for a page."""
        caller, module = (name.removeprefix("sparkext.") for name in (self.caller, self.module))
        return f"`{caller}` → `{module}.{self.function}`"


@dataclass
class Trace:
    """The hops while it is active, each once, in the order of their first calls."""

    hops: list[Hop] = field(default_factory=list)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def start(self) -> None:
        gc.disable()  # a collection would call `engine.worker_task` at any place
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        module = _module_of(frame)
        if event != "call" or module is None:
            return
        caller = _nearest_module(frame.f_back)
        if caller is None or caller == module or caller.startswith(_MEASURING):
            return
        if (caller, module) not in self._seen:
            self._seen.add((caller, module))
            name = frame.f_code.co_name
            given = name.startswith(("<", "__")) or bool(frame.f_code.co_flags & inspect.CO_GENERATOR)
            self.hops.append(Hop(caller, module, name, given))


def _module_of(frame: FrameType) -> str | None:
    name = frame.f_globals.get("__name__", "")
    return name if _OWN.match(name) else None


def _nearest_module(frame: FrameType | None) -> str | None:
    while frame is not None:
        module = _module_of(frame)
        if module is not None:
            return module
        frame = frame.f_back
    return None


def read_layers() -> list[str]:
    """Return the packages of `sparkext`, the highest first, as the contract on imports lists them."""
    found = _LAYERS.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert found is not None
    return re.findall(r'"(\w+)"', found[1])


def trace_probe_batch() -> list[Hop]:
    """Return the hops from a probe batch's arrival at a pipeline of two joins to its first result."""
    from sparkext.engine.join_pipeline import EmittedBatches
    from sparkext.engine.pipeline_plan import PipelinePlan
    from sparkext.engine.pipeline_task import PipelineTask
    from sparkext.engine.task_sources import ProbeBatches
    from sparkext.plans.pipeline.spec import ColumnRef, PipelineSpec
    from tests.engine import test_reduced_sources as pipelines

    trace = Trace()
    rows = pipelines.table(1, 2000, (200, 40)).combine_chunks().to_batches()[0]
    rows = pa.RecordBatch.from_arrays(rows.columns, schema=pipelines.integers(2))

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows.slice(0, 1000)  # for which the task opens the build sides and orders the joins
        trace.start()
        yield rows.slice(1000)

    with tempfile.TemporaryDirectory() as folder:
        sources = tuple(
            pipelines.scanned(Path(folder) / f"{name}.parquet", pipelines.table(seed, 300, (most, 50)))
            for name, seed, most in (("a", 3, 200), ("b", 4, 40))
        )
        joins = (pipelines.join("inner", (0, 0, 0)), pipelines.join("inner", (0, 1, 0)))
        spec = PipelineSpec(2, joins, (ColumnRef(0, 0), ColumnRef(1, 1), ColumnRef(2, 1)))
        schema = pa.schema([(f"c{number}", pa.int64()) for number in range(3)])
        settings = replace(pipelines.SETTINGS, morsel_max_rows=1000, morsel_min_rows=1)
        task = PipelineTask(
            ProbeBatches(),
            PipelinePlan(spec, sources, schema),
            EmittedBatches(),
            pipelines.Reported(),
            settings=settings,
            tasks_sharing=1,
        )
        results = iter(task(batches()))
        try:
            for _ in results:
                if trace.hops:
                    break
        finally:
            trace.stop()
        for _ in results:
            pass
    return trace.hops


def trace_stream_rows() -> list[Hop]:
    """Return the hops of a stream's rows: from a batch to sent blocks, and from received blocks to a first result."""
    from sparkext.streaming.join.join_task import StreamJoinTask
    from sparkext.streaming.join.send_task import StreamJoinSendTask
    from tests.streaming.join import test_stream_tasks as streams
    from tests.streaming.tasks import Query, batch_of, task

    trace, draw = Trace(), random.Random(1)

    def traced(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        trace.start()
        yield from batches

    def first(results: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        found = next(results)
        trace.stop()
        return found

    with tempfile.TemporaryDirectory() as folder:
        query = Query(streams.joined("key", 1), Path(folder) / "checkpoint", draw)
        for _ in range(2):
            query.process([streams.left_rows(draw, 50)], [streams.right_rows(draw, 50)])
        blocks = query.blocks([], [])[0]
        batch = batch_of(streams.left_rows(draw, 50), query.join.sides[0].rows)
        with task(0, query.properties()):
            sending = iter(StreamJoinSendTask(query.join, 0, (0,))(traced([batch])))
            blocks += [first(sending), *sending]
        with task(0, query.properties()):
            joining = iter(StreamJoinTask(query.join)(traced(blocks)))
            assert first(joining).num_rows
            list(joining)
    return trace.hops


def updated(page: str) -> str:
    """Return the page with the lists of this run."""
    climbs = [hop for hop in trace_stream_rows() if hop.is_climb(read_layers())]
    for name, hops in (("probe batch", trace_probe_batch()), ("climbs", climbs)):
        lines = "".join(f"{number}. {hop}\n" for number, hop in enumerate(hops, 1))
        begin, end = f"<!-- hops: {name} -->", f"<!-- end of {name} -->"
        page = re.sub(f"{begin}.*?{end}", lambda _, text=f"{begin}\n\n{lines}\n{end}": text, page, flags=re.S)
    return page


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
