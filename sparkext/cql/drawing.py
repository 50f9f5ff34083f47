"""Draws a graph of queries: from the streams above to what follows from them, in the order in which queries run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from sparkext.cql.graph import Graph
from sparkext.cql.queries import spelled_delay

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 170, 40, 40, 46, 70
_STYLE = """<style>
text { font: 13px sans-serif; fill: #222 } .small { font-size: 11px; fill: #555 }
rect { fill: #fff; stroke: #456; rx: 6 } .stream { fill: #e8f1fa } .cycle { fill: #fdf1dc; stroke: #b76b00 }
path { fill: none; stroke: #456; marker-end: url(#tip) } .delayed { stroke: #b76b00; stroke-dasharray: 5 3 }
</style><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8z" style="fill:#456;stroke:none;marker-end:none"/></marker></defs>"""


@dataclass(frozen=True)
class Drawing:
    """A picture, which notebooks show."""

    svg: str

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


def drawing(graph: Graph) -> Drawing:
    """Draw streams (blue), queries by number, cycles (orange), and delays (dashed, with their length)."""
    layers = _layers(graph)
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
    parts = [_edge(graph, read, name, places) for name, query in graph.queries.items() for read in query.reads()]
    for name, (x, y) in places.items():
        kind = "stream" if name in graph.streams else "cycle" if name in on_cycles else "query"
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}"/>')
        number = f"{graph.order.index(name) + 1}. " if name in graph.queries else ""
        parts.append(f'<text x="{x + _WIDTH / 2}" y="{y + 17}" text-anchor="middle">{number}{escape(name)}</text>')
        said = escape(_said(graph, name))
        parts.append(f'<text class="small" x="{x + _WIDTH / 2}" y="{y + 32}" text-anchor="middle">{said}</text>')
    width = 2 * _MARGIN + widest * (_WIDTH + _ACROSS) - _ACROSS
    height = 40 + len(layers) * (_HEIGHT + _DOWN) - _DOWN
    title = f"<title>Queries {escape(', '.join(graph.order))}</title>"
    return Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">{title}'
        f"{_STYLE}{''.join(parts)}</svg>"
    )


def _said(graph: Graph, name: str) -> str:
    if name in graph.streams:
        return "stream"
    query = graph.queries[name]
    made = "relation" if query.operator is None else query.operator.upper()
    return made + ("" if graph.is_monotone(name) else ", not monotone")


def _layers(graph: Graph) -> list[list[str]]:
    """Return streams, and queries below all that they read at the same instant."""
    depth = dict.fromkeys(graph.streams, 0)
    for name in graph.order:
        reads = [read for read in graph.queries[name].reads() if read in depth and not graph.is_delayed(read)]
        depth[name] = 1 + max((depth[read] for read in reads), default=0)
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name, at in depth.items():
        layers[at].append(name)
    return layers


def _edge(graph: Graph, read: str, name: str, places: Mapping[str, tuple[float, float]]) -> str:
    (x, y), (to_x, to_y) = places[read], places[name]
    start, end = x + _WIDTH / 2, to_x + _WIDTH / 2
    if to_y > y:
        path = f"M{start} {y + _HEIGHT}C{start} {y + _HEIGHT + 26} {end} {to_y - 26} {end} {to_y - 2}"
        middle = (start + end) / 2, (y + _HEIGHT + to_y) / 2
    else:  # back up, around the nearer side
        is_left = x + _WIDTH / 2 <= sum(place[0] for place in places.values()) / len(places) + _WIDTH / 2
        at, to, side = (x, to_x - 2, min(x, to_x) - _MARGIN) if is_left else (x, to_x + 2, max(x, to_x) + _MARGIN)
        if not is_left:
            at, to, side = at + _WIDTH, to + _WIDTH, side + _WIDTH
        path = f"M{at} {y + 26}C{side} {y + 26} {side} {to_y + 12} {to} {to_y + 12}"
        middle = (at + 3 * side) / 4 + (-12 if is_left else 12), (y + to_y) / 2 + 24
    delay = graph.queries[read].delay if read in graph.queries else None
    if delay is None:
        return f'<path d="{path}"/>'
    said = spelled_delay(delay)
    label = f'<text class="small" x="{middle[0]}" y="{middle[1]}" text-anchor="middle">{said}</text>'
    return f'<path class="delayed" d="{path}"/>{label}'
