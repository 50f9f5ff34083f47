"""Draws a graph of queries: streams at the top, and below them queries in the order in which they run.

A drawing may be embedded in a page: it styles nothing but itself, and its colours contrast with white and with black.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from sparkext.streaming.cql.language.graph import Graph
from sparkext.streaming.cql.language.queries import spell_delay

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 170, 40, 40, 46, 70
_STREAM, _QUERY, _CYCLE = "#2f80d0", "#808080", "#c8640c"
_STYLE = """<style>
.sparkext-cql:root { color: #24292f }
@media (prefers-color-scheme: dark) { .sparkext-cql:root { color: #e3e6ee; background: #14181d } }
</style>"""
"""Applies to a drawing in its own file; in a page, a drawing has the page's text colour. All other styles are
attributes."""


@dataclass(frozen=True)
class Drawing:
    """A picture, which notebooks show."""

    svg: str

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


def draw_graph(graph: Graph) -> Drawing:
    """Draw streams (blue), queries with their positions, cycles (orange), and delays (dashed, with their length)."""
    layers = _assign_layers(graph)
    widest = max(map(len, layers))
    places = {
        name: (
            _MARGIN + (widest - len(layer)) * (_WIDTH + _ACROSS) / 2 + place * (_WIDTH + _ACROSS),
            20 + depth * (_HEIGHT + _DOWN),
        )
        for depth, layer in enumerate(layers)
        for place, name in enumerate(layer)
    }
    on_cycles = {name for part in graph.components for name in part}
    tip = f"sparkext-cql-{hashlib.sha256(repr(graph.queries).encode()).hexdigest()[:12]}"
    width = 2 * _MARGIN + widest * (_WIDTH + _ACROSS) - _ACROSS
    height = 40 + len(layers) * (_HEIGHT + _DOWN) - _DOWN
    edges = [
        _draw_edge(graph, read, name, places, tip) for name, query in graph.queries.items() for read in query.reads()
    ]
    parts = [f'<g mask="url(#{tip}-mask)">{"".join(edges)}</g>']
    for name, (x, y) in places.items():
        color = _STREAM if name in graph.streams else _CYCLE if name in on_cycles else _QUERY
        look = f'fill="{color}" fill-opacity=".12" stroke="{color}"'
        parts.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" {look}/>')
        number = f"{graph.order.index(name) + 1}. " if name in graph.queries else ""
        parts.append(_draw_text(x + _WIDTH / 2, y + 17, number + name))
        parts.append(_draw_text(x + _WIDTH / 2, y + 32, _describe_node(graph, name), 11))
    title = f"<title>Queries {escape(', '.join(graph.order))}</title>"
    return Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sparkext-cql" viewBox="0 0 {width} {height}" width="{width}"'
        f' role="img" font-family="sans-serif" fill="currentColor">{title}{_STYLE}'
        f"{_write_definitions(tip, width, height, places)}{''.join(parts)}</svg>"
    )


def _draw_text(x: float, y: float, words: str, size: int = 13) -> str:
    soft = ' opacity=".75"' if size < 13 else ""
    return f'<text x="{x}" y="{y}" text-anchor="middle" font-size="{size}"{soft}>{escape(words)}</text>'


def _write_definitions(name: str, width: float, height: float, places: Mapping[str, tuple[float, float]]) -> str:
    """Return the tip of all arrows, and the mask that hides arrows within boxes, which are translucent.

    `name`: the drawing's own name, so that drawings in one page have different ids.
    """
    size = f'width="{_WIDTH}" height="{_HEIGHT}" rx="6"'
    holes = "".join(f'<rect x="{x}" y="{y}" {size} fill="black"/>' for x, y in places.values())
    return (
        f'<defs><marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{_QUERY}"/></marker>'
        f'<mask id="{name}-mask" maskUnits="userSpaceOnUse" x="0" y="0" width="{width}" height="{height}">'
        f'<rect width="{width}" height="{height}" fill="white"/>{holes}</mask></defs>'
    )


def _describe_node(graph: Graph, name: str) -> str:
    if name in graph.streams:
        return "stream"
    query = graph.queries[name]
    made = "relation" if query.operator is None else query.operator.upper()
    return made + ("" if graph.is_monotone(name) else ", not monotone")


def _assign_layers(graph: Graph) -> list[list[str]]:
    """Return layers: streams first, each query below all streams and queries that it reads at the same instant."""
    depth = dict.fromkeys(graph.streams, 0)
    for name in graph.order:
        reads = [read for read in graph.queries[name].reads() if read in depth and not graph.is_delayed(read)]
        depth[name] = 1 + max((depth[read] for read in reads), default=0)
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name, at in depth.items():
        layers[at].append(name)
    return layers


def _draw_edge(graph: Graph, read: str, name: str, places: Mapping[str, tuple[float, float]], tip: str) -> str:
    (x, y), (to_x, to_y) = places[read], places[name]
    start, end = x + _WIDTH / 2, to_x + _WIDTH / 2
    if to_y > y:
        path = f"M{start} {y + _HEIGHT}C{start} {y + _HEIGHT + 26} {end} {to_y - 26} {end} {to_y - 2}"
        middle = (start + end) / 2, (y + _HEIGHT + to_y) / 2
    else:  # an edge to the same or an upper layer goes around the nearer side
        is_left = x + _WIDTH / 2 <= sum(place[0] for place in places.values()) / len(places) + _WIDTH / 2
        at, to, side = (x, to_x - 2, min(x, to_x) - _MARGIN) if is_left else (x, to_x + 2, max(x, to_x) + _MARGIN)
        if not is_left:
            at, to, side = at + _WIDTH, to + _WIDTH, side + _WIDTH
        path = f"M{at} {y + 26}C{side} {y + 26} {side} {to_y + 12} {to} {to_y + 12}"
        middle = (at + 3 * side) / 4 + (-12 if is_left else 12), (y + to_y) / 2 + 24
    delay = graph.queries[read].delay if read in graph.queries else None
    line = f'<path d="{path}" fill="none" marker-end="url(#{tip})" stroke='
    if delay is None:
        return f'{line}"{_QUERY}"/>'
    return f'{line}"{_CYCLE}" stroke-dasharray="5 3"/>{_draw_text(*middle, spell_delay(delay), 11)}'
