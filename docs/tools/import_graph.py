"""Which room of the package imports which, read from the sources, and the drawing of it.

A room is a folder of `sparkext`, or `kernels` or `plans` beside it. Modules that lie in no room (errors, configuration)
are at everybody's disposal.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BESIDE = ("kernels", "plans")
_WIDTH, _HEIGHT, _BOX, _GAP = 760, 46, 104, 44
_MARGIN = 14

Graph = Mapping[str, frozenset[str]]


def import_graph() -> Graph:
    """Return the rooms, each with those that its modules import, wherever in a module."""
    folders = {path.name: path for path in (ROOT / "sparkext").iterdir() if any(path.glob("*.py"))}
    folders |= {name: ROOT / name for name in _BESIDE}
    return {
        name: frozenset(room for path in folder.rglob("*.py") for room in _rooms(path) if room in folders) - {name}
        for name, folder in sorted(folders.items())
    }


def imported_modules(source: str) -> set[str]:
    """Return the absolute names of all modules that a source imports anywhere; a relative import counts as its dots."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            # `from sparkext import plans` names a package in its second half.
            names.update([f"{module}.{alias.name}" for alias in node.names] if module == "sparkext" else [module])
    return names


def _rooms(path: Path) -> Iterator[str]:
    for name in imported_modules(path.read_text(encoding="utf-8")):
        package, _, rest = name.partition(".")
        if package == "sparkext" and rest:
            yield rest.split(".")[0]


def layers(graph: Graph) -> list[list[str]]:
    """Return the rooms from the top down, each in the layer below the last one that imports it.

    Raises
    ------
    ValueError
        Names the rooms of a circle.
    """

    @cache
    def depth(room: str, below: tuple[str, ...] = ()) -> int:
        if room in below:
            raise ValueError(f"rooms import each other: {' → '.join([room, *reversed(below[below.index(room) :])])}")
        return max((1 + depth(other, (*below, room)) for other in graph if room in graph[other]), default=0)

    found: dict[int, list[str]] = {}
    for room in graph:
        found.setdefault(depth(room), []).append(room)
    return [found[number] for number in sorted(found)]


def direct(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the imports that no other path of imports stands for."""

    @cache
    def reached(room: str) -> frozenset[str]:
        return graph[room].union(*map(reached, graph[room])) if graph[room] else frozenset()

    for room, imports in graph.items():
        for other in sorted(imports):
            if not any(other in reached(between) for between in imports - {other}):
                yield room, other


def drawing() -> str:
    """Return the graph as an SVG, in the colours of the other drawings: rooms in layers, arrows to what they import."""
    graph = import_graph()
    rows = layers(graph)
    places = {
        room: (round(_WIDTH * (place + 1) / (len(row) + 1)), _MARGIN + number * (_HEIGHT + _GAP))
        for number, row in enumerate(rows)
        for place, room in enumerate(row)
    }
    style = (ROOT / "docs" / "drawings" / "scan.svg").read_text(encoding="utf-8")
    style = style[style.index("<style>") : style.index("</style>") + len("</style>")]
    height = 2 * _MARGIN + len(rows) * (_HEIGHT + _GAP) - _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sparkext-drawing" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}">',
        "<title>The rooms of sparkext, and which of them import which</title>",
        style,
        '<defs><marker id="rooms-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>',
        *(_arrow(places[one], places[other]) for one, other in direct(graph)),
        *(_box(room, *place, marked=room in _BESIDE) for room, place in places.items()),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(room: str, x: int, y: int, marked: bool) -> str:
    kind = ' class="mark"' if marked else ""
    return (
        f'<rect x="{x - _BOX // 2}" y="{y}" width="{_BOX}" height="{_HEIGHT}" rx="5"{kind}/>'
        f'<text x="{x}" y="{y + _HEIGHT // 2 + 4}" class="mid">{room}/</text>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x, y), (to_x, to_y) = start, end
    bend = _GAP * 0.8
    return (
        f'<path d="M{x} {y + _HEIGHT} C{x} {y + _HEIGHT + bend:g} {to_x} {to_y - bend:g} {to_x} {to_y - 2}"'
        ' marker-end="url(#rooms-arrow)"/>'
    )
