"""Which room may import which, read from the source, and how light `import sparkext` is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sparkext
from docs.tools.import_graph import drawing, import_graph, imported_modules, layers

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "kernels": ("numpy", "numba", "llvmlite", "pyarrow", "sparkext.kernels"),
    "plans": ("sparkext.plans",),
}
ROOMS = (
    "memory",
    "storage",
    "rows",
    "cql",
    "parquet",
    "build_sides",
    "state",
    "exchange",
    "reports",
    "spark",
    "worker",
    "transforms",
    "streams",
    "cli",
)
"""Each imports only from those before it."""


def forbidden_imports(folder: str, source: str) -> set[str]:
    """Imports in `source` that a module of `folder` must not have."""
    allowed = ALLOWED[folder]
    return {
        name
        for name in imported_modules(source)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)
    }


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))
    assert modules
    found = {path.name: forbidden_imports(folder, path.read_text(encoding="utf-8")) for path in modules}
    assert not {name: names for name, names in found.items() if names}


def test_rooms_import_one_way() -> None:
    graph = import_graph()
    assert set(graph) == {*ROOMS, *ALLOWED}
    assert {room: graph[room] - {*ROOMS[:number], *ALLOWED} for number, room in enumerate(ROOMS)} == {
        room: set() for room in ROOMS
    }
    assert not set(ROOMS) & set(sparkext.__all__)  # a room that is imported would take the place of a function
    assert all(ROOT.joinpath("sparkext", room, "__init__.py").is_file() for room in ROOMS)


def test_what_is_in_no_room_imports_from_none() -> None:
    for name in ("_version", "config", "errors", "shared", "wording"):
        source = (ROOT / "sparkext" / f"{name}.py").read_text(encoding="utf-8")
        assert not {
            module for module in imported_modules(source) if module.split(".")[1:2] and module.split(".")[1] in ROOMS
        }


def test_the_drawing_is_that_of_the_sources() -> None:
    drawn = (ROOT / "docs" / "drawings" / "rooms.svg").read_text(encoding="utf-8")
    assert drawn == drawing(), "run `python -m docs.tools.generate`"


def test_a_circle_is_named() -> None:
    with pytest.raises(ValueError, match="rooms import each other: a → b → a"):
        layers({"a": frozenset("b"), "b": frozenset("ca"), "c": frozenset()})


@pytest.mark.parametrize(
    ("folder", "line", "expected"),
    [
        ("kernels", "from sparkext.kernels.jit import kernel", set()),
        ("kernels", "import numba.core, math", set()),
        ("kernels", "import pyspark", {"pyspark"}),
        ("kernels", "from sparkext.plans.output_size import budget", {"sparkext.plans.output_size"}),
        ("kernels", "from sparkext import plans", {"sparkext.plans"}),
        ("kernels", "from sparkext.errors import SparkExtError", {"sparkext.errors"}),
        ("kernels", "from . import jit", {"."}),
        ("plans", "from sparkext.plans import output_size", set()),
        ("plans", "def f():\n    import numpy", {"numpy"}),
        ("plans", "import pyarrow.compute", {"pyarrow.compute"}),
        ("plans", "from sparkext.kernels.jit import kernel", {"sparkext.kernels.jit"}),
    ],
)
def test_the_rule_sees_through(folder: str, line: str, expected: set[str]) -> None:
    assert forbidden_imports(folder, line) == expected


@pytest.mark.parametrize(
    "module", ["sparkext", "sparkext.__main__", "sparkext.cli.doctor", "sparkext.cli.tpch", "sparkext.plans"]
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {"pyspark", "numba", "numpy", "pyarrow", "pandas"}.isdisjoint(json.loads(ran.stdout))
