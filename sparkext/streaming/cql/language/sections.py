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
    section_of = {name: name for name in graph.queries}
    for name in graph.order:
        for read in graph.queries[name].reads():
            if read in section_of and not graph.is_stream(read):
                _merge_sections(section_of, section_of[name], section_of[read])
    while True:
        reads = _find_read_sections(graph, section_of)
        cycles = [part for part in find_components(reads) if len(part) > 1]
        if not cycles:
            break
        for first, *rest in map(sorted, cycles):
            for later in rest:
                _merge_sections(section_of, first, later)
    sections: list[str] = []
    while len(sections) < len(reads):
        sections.append(
            next(section for section in reads if section not in sections and {*reads[section]} <= {*sections})
        )
    return tuple(tuple(name for name in graph.order if section_of[name] == section) for section in sections)


def _merge_sections(section_of: dict[str, str], target: str, source: str) -> None:
    for name, current in section_of.items():
        if current == source:
            section_of[name] = target


def _find_read_sections(graph: Graph, section_of: dict[str, str]) -> dict[str, list[str]]:
    """Return the other sections that each section reads."""
    reads: dict[str, list[str]] = {section_of[name]: [] for name in graph.order}
    for name in graph.order:
        reads[section_of[name]] += [
            section_of[read]
            for read in graph.queries[name].reads()
            if read in section_of and section_of[read] != section_of[name]
        ]
    return reads
