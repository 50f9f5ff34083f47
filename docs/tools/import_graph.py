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
    """Return the graph as a Mermaid drawing: packages, with arrows to the packages that they import."""
    lines = [f"    {package} --> {other}" for package, other in direct(import_graph())]
    return "\n".join(["```mermaid", "flowchart TB", *lines, "```"])
