"""The example notebook has the script's code and stored results. It runs in an environment that is not activated."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.support.unactivated import unactivated

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def maker() -> Any:
    spec = spec_from_file_location("make_notebook", EXAMPLES / "make_notebook.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_is_the_script_with_results(maker: Any) -> None:
    kept, made = nbformat.read(maker.NOTEBOOK, as_version=4), maker.converted()
    nbformat.validate(kept)
    assert [(cell.cell_type, cell.source) for cell in kept.cells] == [
        (cell.cell_type, cell.source) for cell in made.cells
    ], "run `python examples/make_notebook.py`"
    check_results(kept)
    assert maker.NOTEBOOK.stat().st_size < 150_000


def test_the_notebook_runs(maker: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", unactivated(tmp_path)["PATH"])
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    notebook = maker.converted()
    maker.run(notebook)
    check_results(notebook)


def check_results(notebook: Any) -> None:
    """Assert that every cell has run without errors and shows its results."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    text = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "PipelinedJoin [inner" in text and "scan=fused" in text
    assert "rows, the same from both" in text
    assert "12,000,000 rows. The largest worker: " in text
    pages = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert "<svg" in pages[0] and "lowest" in pages[0] and "spark.sparkext.memory.maxBytes" in pages[0]
    assert len(pages) == 3
