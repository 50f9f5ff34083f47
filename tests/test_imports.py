"""The contracts on imports, each violated deliberately, and the weight of `import sparkext`."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sparkext
from docs.tools.import_graph import import_graph, mapped_sources, module_graph

ROOT = Path(__file__).parents[1]
COMMANDS = {"main"}
"""Names that Python and the command line prescribe."""

KERNELS_MAY = {"numpy", "numba", "llvmlite", "pyarrow"}


def linted(folder: Path) -> str:
    """Return the findings of import-linter for the package in a folder."""
    command = [str(Path(sys.executable).parent / "lint-imports"), str(ROOT / "pyproject.toml"), "--no-cache"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return ran.stdout + ran.stderr


def test_the_contracts_are_kept() -> None:
    with mapped_sources() as folder:
        assert "5 kept, 0 broken" in linted(folder)


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("storage/container.py", "def later():\n    import sparkext.engine.pipeline", "packages import one way"),
        ("errors.py", "import sparkext.memory.freed", "packages import one way"),
        ("plans/pipeline/spec.py", "from sparkext.kernels.runtime.jit import kernel", "packages import one way"),
        ("kernels/runtime/jit.py", "from sparkext.errors import SparkExtError", "packages import one way"),
        ("kernels/runtime/jit.py", "import pyspark", "kernels know numpy, numba, llvmlite and pyarrow alone"),
        ("plans/pipeline/spec.py", "import numpy", "plans know the standard library alone"),
        (
            "streaming/cql/code/engine.py",
            "import pyspark",
            "the language and the engine of continuous queries know no Spark",
        ),
        ("reports/text.py", "import sparkext.reports.report", "no modules import each other in a circle"),
        ("new_package/__init__.py", "", "packages import one way"),
    ],
)
def test_a_contract_that_is_broken_is_named(module: str, line: str, contract: str) -> None:
    with mapped_sources() as folder:
        package = folder / "sparkext" / module.split("/")[0]
        if package.is_symlink():
            source = package.resolve()
            package.unlink()
            if source.is_dir():
                shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, package)
        else:
            package.mkdir()
        file = folder / "sparkext" / module
        file.write_text(f"{file.read_text() if file.exists() else ''}\n{line}\n", encoding="utf-8")
        assert f"{contract} BROKEN" in linted(folder)


def test_kernels_and_plans_import_nothing_else() -> None:
    for package, allowed in (("kernels", KERNELS_MAY), ("plans", set())):
        modules = [imports for name, imports in module_graph().items() if name.startswith(f"sparkext.{package}.")]
        assert len(modules) > 20
        imported = frozenset[str]().union(*modules)
        others = {name.split(".")[0] for name in imported if not name.startswith(f"sparkext.{package}")}
        assert others - set(sys.stdlib_module_names) <= allowed, package


def test_plans_have_no_threads_and_clocks() -> None:
    """They decide; the engine owns threads, locks and clocks."""
    owners = r"^\s*(from|import) (threading|time|queue|concurrent|asyncio|multiprocessing)\b"
    plans = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "plans").rglob("*.py")}
    assert [name for name, text in plans.items() if re.search(owners, text, re.MULTILINE)] == []


def test_no_package_has_the_name_of_a_function() -> None:
    """Importing such a package would replace the function."""
    assert not set(import_graph()) & set(sparkext.__all__)


def test_each_public_name_is_defined_once() -> None:
    found: dict[str, set[str]] = {}
    for folder in ("sparkext", "kernels", "plans"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                    found.setdefault(node.name, set()).add(str(path.relative_to(ROOT)))
    assert len(found) > 1000
    assert {name: places for name, places in found.items() if len(places) > 1 and name not in COMMANDS} == {}


@pytest.mark.parametrize(
    "module", ["sparkext", "sparkext.__main__", "sparkext.cli.doctor", "sparkext.cli.tpch", "sparkext.plans"]
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {"pyspark", "numba", "numpy", "pyarrow", "pandas"}.isdisjoint(json.loads(ran.stdout))
