"""The graph of imports between the packages of sparkext, and its drawing.

A package is a folder of `sparkext`, or `kernels` or `plans`, which are mapped into it. Modules outside of any folder
(errors, configuration) are open to all packages, and left out. Contracts on imports are in `pyproject.toml`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BESIDE = ("kernels", "plans")
_WIDTH, _HEIGHT, _BOX, _GAP = 760, 46, 104, 44
_MARGIN = 14

Graph = Mapping[str, frozenset[str]]


@contextmanager
def mapped_sources() -> Iterator[Path]:
    """Yield a folder with the package as installed, including `kernels` and `plans`, as links to the sources."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "sparkext"
        package.mkdir()
        for path in (*(ROOT / "sparkext").iterdir(), *(ROOT / name for name in _BESIDE)):
            (package / path.name).symlink_to(path)
        yield Path(folder)


_EDGES = """
import grimp, json
graph = grimp.build_graph("sparkext", include_external_packages=True, cache_dir=None)
print(json.dumps({name: sorted(graph.find_modules_directly_imported_by(name)) for name in graph.modules}))
"""


@cache
def module_graph() -> Graph:
    """Return the modules, each with all modules that it imports, also within functions and from other libraries.

    Runs in another process, because grimp would find the packages that this process has imported.
    """
    with mapped_sources() as folder:
        ran = subprocess.run([sys.executable, "-c", _EDGES], cwd=folder, capture_output=True, text=True, check=True)
    return {name: frozenset(imported) for name, imported in json.loads(ran.stdout).items()}


def import_graph() -> Graph:
    """Return the packages, each with the packages that its modules import."""
    packages = {_package(name) for name in module_graph() if name.count(".") > 1} - {""}
    found: dict[str, set[str]] = {name: set() for name in sorted(packages)}
    for module, imported in module_graph().items():
        if (package := _package(module)) in packages:
            found[package] |= {_package(name) for name in imported} & packages - {package}
    return {name: frozenset(others) for name, others in found.items()}


def _package(module: str) -> str:
    """Return the package of a module of sparkext, or '' for other modules."""
    return (*module.split("."), "")[1] if module.startswith("sparkext.") else ""


def layers(graph: Graph) -> list[list[str]]:
    """Return the packages from the top down, each in the layer below the last one that imports it.

    Raises
    ------
    ValueError
        Packages import each other; the message lists the cycle.
    """

    @cache
    def depth(package: str, below: tuple[str, ...] = ()) -> int:
        if package in below:
            raise ValueError(
                f"packages import each other: {' → '.join([package, *reversed(below[below.index(package) :])])}"
            )
        return max((1 + depth(other, (*below, package)) for other in graph if package in graph[other]), default=0)

    found: dict[int, list[str]] = {}
    for package in graph:
        found.setdefault(depth(package), []).append(package)
    return [found[number] for number in sorted(found)]


def direct(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the imports that are not implied by a longer path of imports."""

    @cache
    def reached(package: str) -> frozenset[str]:
        return graph[package].union(*map(reached, graph[package])) if graph[package] else frozenset()

    for package, imports in graph.items():
        for other in sorted(imports):
            if not any(other in reached(between) for between in imports - {other}):
                yield package, other


def drawing() -> str:
    """Return the graph as an SVG: packages in layers, with arrows to the packages that they import."""
    graph = import_graph()
    rows = layers(graph)
    places = {
        package: (round(_WIDTH * (place + 1) / (len(row) + 1)), _MARGIN + number * (_HEIGHT + _GAP))
        for number, row in enumerate(rows)
        for place, package in enumerate(row)
    }
    style = (ROOT / "docs" / "drawings" / "scan.svg").read_text(encoding="utf-8")
    style = style[style.index("<style>") : style.index("</style>") + len("</style>")]
    height = 2 * _MARGIN + len(rows) * (_HEIGHT + _GAP) - _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sparkext-drawing" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}">',
        "<title>The packages of sparkext, and which of them import which</title>",
        style,
        '<defs><marker id="packages-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>',
        *(_arrow(places[one], places[other]) for one, other in direct(graph)),
        *(_box(package, *place, marked=package in _BESIDE) for package, place in places.items()),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(package: str, x: int, y: int, marked: bool) -> str:
    kind = ' class="mark"' if marked else ""
    return (
        f'<rect x="{x - _BOX // 2}" y="{y}" width="{_BOX}" height="{_HEIGHT}" rx="5"{kind}/>'
        f'<text x="{x}" y="{y + _HEIGHT // 2 + 4}" class="mid">{package}/</text>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x, y), (to_x, to_y) = start, end
    bend = _GAP * 0.8
    return (
        f'<path d="M{x} {y + _HEIGHT} C{x} {y + _HEIGHT + bend:g} {to_x} {to_y - bend:g} {to_x} {to_y - 2}"'
        ' marker-end="url(#packages-arrow)"/>'
    )
