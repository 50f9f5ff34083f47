"""Who may import whom (DESIGN §3), read from the source, and how light `import sparkext` is."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "kernels": ("numpy", "numba", "llvmlite", "pyarrow", "sparkext.kernels"),
    "plans": ("sparkext.plans",),
}


def imported_modules(source: str) -> set[str]:
    """Absolute names of all modules that `source` imports anywhere; a relative import counts as its dots."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            # `from sparkext import plans` names a package in its second half.
            names.update([f"{module}.{alias.name}" for alias in node.names] if module == "sparkext" else [module])
    return names


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


@pytest.mark.parametrize(
    ("folder", "line", "expected"),
    [
        ("kernels", "from sparkext.kernels.jit import kernel", set()),
        ("kernels", "import numba.core, math", set()),
        ("kernels", "import pyspark", {"pyspark"}),
        ("kernels", "from sparkext.plans.morsel import budget", {"sparkext.plans.morsel"}),
        ("kernels", "from sparkext import plans", {"sparkext.plans"}),
        ("kernels", "from sparkext.errors import SparkExtError", {"sparkext.errors"}),
        ("kernels", "from . import jit", {"."}),
        ("plans", "from sparkext.plans import morsel", set()),
        ("plans", "def f():\n    import numpy", {"numpy"}),
        ("plans", "import pyarrow.compute", {"pyarrow.compute"}),
        ("plans", "from sparkext.kernels.jit import kernel", {"sparkext.kernels.jit"}),
    ],
)
def test_the_rule_sees_through(folder: str, line: str, expected: set[str]) -> None:
    assert forbidden_imports(folder, line) == expected


@pytest.mark.parametrize(
    "module", ["sparkext", "sparkext.__main__", "sparkext.doctor", "sparkext.tpch", "sparkext.plans"]
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {"pyspark", "numba", "numpy", "pyarrow", "pandas"}.isdisjoint(json.loads(ran.stdout))
