"""Divides a graph into sections: queries that have to run together, instant by instant.

Sections are connected by streams only, without cycles, so a section may run ahead of the readers of its streams. The
content of a relation is known at the present instant only, so its readers are in the same section as the relation. All
queries of a cycle are in one section, too.
"""

from __future__ import annotations

from sparkext.streaming.cql.language.graph import Graph, find_components

Section = tuple[str, ...]


def sections_of(graph: Graph) -> tuple[Section, ...]:
    """Return the sections in topological order, each with its queries in the order in which they run."""
    of = {name: name for name in graph.queries}
    for name in graph.order:
        for read in graph.queries[name].reads():
            if read in of and not graph.is_stream(read):
                _join(of, of[name], of[read])
    while True:
        reads = _find_read_sections(graph, of)
        circles = [part for part in find_components(reads) if len(part) > 1]
        if not circles:
            break
        for first, *others in map(sorted, circles):
            for other in others:
                _join(of, first, other)
    found: list[str] = []
    while len(found) < len(reads):
        found.append(next(one for one in reads if one not in found and {*reads[one]} <= {*found}))
    return tuple(tuple(name for name in graph.order if of[name] == one) for one in found)


def _join(of: dict[str, str], one: str, other: str) -> None:
    for name, section in of.items():
        if section == other:
            of[name] = one


def _find_read_sections(graph: Graph, of: dict[str, str]) -> dict[str, list[str]]:
    """Return the other sections that each section reads."""
    reads: dict[str, list[str]] = {of[name]: [] for name in graph.order}
    for name in graph.order:
        reads[of[name]] += [of[read] for read in graph.queries[name].reads() if read in of and of[read] != of[name]]
    return reads
