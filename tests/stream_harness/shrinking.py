"""Shrinks a failing case by removing runs, batches, files, rows, columns and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.stream_harness.cases import Case
from tests.stream_harness.columns import Derivation
from tests.stream_harness.cuts import Run
from tests.stream_harness.nodes import Node
from tests.stream_harness.operators.inputs import Input
from tests.stream_harness.sources import Source, Stream
from tests.support.harness.shrinking import PATIENCE_SECONDS, omit_parts, shrink


def shrunk(case: Case, is_wrong: Callable[[Case], bool], patience: float = PATIENCE_SECONDS) -> Case:
    """Return the smallest failing case that was found within the time limit."""
    return shrink(
        case, (_without_queries, _plainer, _fewer_batches, _fewer_rows, _fewer_columns, _fewer_rows), is_wrong, patience
    )


def _without_queries(case: Case) -> Iterator[Case]:
    """Yield the operators below the last one as separate queries."""
    for node in getattr(case.query, "inputs", ()) if case.predecessor is None else ():
        if not isinstance(node, Input):
            yield _with_query(case, node)


def _with_query(case: Case, query: Any) -> Case:
    """Return a case with another query, and with only the streams that it reads."""
    numbers = sorted({node.number for node in _inputs(query)})
    return replace(case, query=_renumbered(query, numbers), streams=tuple(case.streams[number] for number in numbers))


def _inputs(node: Node) -> Iterator[Input]:
    if isinstance(node, Input):
        yield node
    else:
        for one in node.inputs:  # type: ignore[attr-defined]
            yield from _inputs(one)


def _renumbered(node: Any, numbers: list[int]) -> Any:
    return _mapped(node, lambda one: replace(one, number=numbers.index(one.number)))


def _mapped(node: Any, change: Callable[[Input], Input]) -> Any:
    """Return a node with changed inputs."""
    if isinstance(node, Input):
        return change(node)
    names = [name for name in ("left", "right", "input") if hasattr(node, name)]
    if not names:
        return replace(node, inputs=tuple(_mapped(one, change) for one in node.inputs))
    return replace(node, **{name: _mapped(getattr(node, name), change) for name in names})


def _plainer(case: Case) -> Iterator[Case]:
    """Yield cases with fewer runs, a default checkpoint, fewer settings, and no failures."""
    if case.checkpoint != "checkpoint":
        yield replace(case, checkpoint="checkpoint")
    for name in case.settings:
        yield replace(case, settings={key: value for key, value in case.settings.items() if key != name})
    total = sum(run.batches for run in case.runs)
    if len(case.runs) > 1:
        for partitions in sorted({run.partitions for run in case.runs}):
            yield replace(case, runs=(Run(total, partitions),))
        for number in range(len(case.runs) - 1):
            one, other = case.runs[number : number + 2]
            together = Run(one.batches + other.batches, other.partitions, other.fails)
            yield replace(case, runs=(*case.runs[:number], together, *case.runs[number + 2 :]))
    for number, run in enumerate(case.runs):
        smaller = [replace(run, partitions=partitions) for partitions in range(1, run.partitions)]
        for other in [replace(run, fails=""), *smaller] if run.fails else smaller:
            yield replace(case, runs=(*case.runs[:number], other, *case.runs[number + 1 :]))
    if case.predecessor is not None:
        yield replace(case, predecessor=None)
    if getattr(case.query, "name", None) is not None and case.predecessor is None:
        yield replace(case, query=replace(case.query, name=None))  # type: ignore[type-var]


def _fewer_batches(case: Case) -> Iterator[Case]:
    """Yield cases without one of the batches, for all streams."""
    first = 0
    for number, run in enumerate(case.runs):
        for batch in range(first, first + run.batches):
            runs = (*case.runs[:number], replace(run, batches=run.batches - 1), *case.runs[number + 1 :])
            streams = tuple(
                _mapped_sources(one, lambda source, at=batch: _without_batch(source, at)) for one in case.streams
            )
            if run.batches > 1 or not run.fails:
                yield replace(
                    case, streams=streams, runs=tuple(one for one in runs if one.batches or one.fails) or runs
                )
        first += run.batches


def _without_batch(source: Source, batch: int) -> Source:
    return replace(source, batches=source.batches[:batch] + source.batches[batch + 1 :])


def _mapped_sources(stream: Stream, change: Callable[[Source], Source]) -> Stream:
    return replace(stream, sources=tuple(map(change, stream.sources)))


def _fewer_rows(case: Case) -> Iterator[Case]:
    """Yield cases with fewer sources, files and rows."""
    for number, stream in enumerate(case.streams):
        if len(stream.sources) > 1:
            for place in range(len(stream.sources)):
                yield _with_stream(
                    case, number, replace(stream, sources=stream.sources[:place] + stream.sources[place + 1 :])
                )
        for place, source in enumerate(stream.sources):
            for batch, files in enumerate(source.batches):
                merged = (tuple(row for file in files for row in file),)
                shorter = omit_parts(merged[0], len(merged[0]) // 32 + 1)
                smaller = [merged] if len(files) > 1 else [(rows,) for rows in shorter]
                for other in smaller:
                    batches = (*source.batches[:batch], other, *source.batches[batch + 1 :])
                    changed = replace(source, batches=batches)
                    sources = (*stream.sources[:place], changed, *stream.sources[place + 1 :])
                    yield _with_stream(case, number, replace(stream, sources=sources))


def _with_stream(case: Case, number: int, stream: Stream) -> Case:
    return replace(case, streams=(*case.streams[:number], stream, *case.streams[number + 1 :]))


def _fewer_columns(case: Case) -> Iterator[Case]:
    """Yield cases without columns that no operator reads, and with simpler derivations."""
    operators = repr(_mapped(case.query, lambda one: replace(one, columns=())))
    for number, stream in enumerate(case.streams):
        for place, column in enumerate(stream.columns):
            if place not in (stream.time, stream.unique) and repr(column.name) not in operators:
                yield _without_column(case, number, place)
        for place in range(len(stream.columns)):
            stored = Derivation()
            if stream.columns[place].of.family != "span" and any(
                one.derivations[place] != stored for one in stream.sources
            ):
                yield _with_stream(case, number, _mapped_sources(stream, lambda one, at=place: _stored(one, at)))


def _stored(source: Source, place: int) -> Source:
    return replace(source, derivations=(*source.derivations[:place], Derivation(), *source.derivations[place + 1 :]))


def _without_column(case: Case, number: int, place: int) -> Case:
    stream = case.streams[number]

    def without(values: Any) -> Any:
        return values[:place] + values[place + 1 :]

    def smaller(source: Source) -> Source:
        batches = tuple(tuple(tuple(map(without, file)) for file in batch) for batch in source.batches)
        return Source(without(source.derivations), batches)

    columns = without(stream.columns)
    time, unique = (at - (place < at) for at in (stream.time, stream.unique))
    changed = replace(_mapped_sources(stream, smaller), columns=columns, time=time, unique=unique)
    changed_case = _with_stream(case, number, changed)
    for name in ("query", "predecessor"):
        node = getattr(case, name)
        if node is not None:
            node = _mapped(node, lambda one: replace(one, columns=columns) if one.number == number else one)
            changed_case = replace(changed_case, **{name: node})
    return changed_case
