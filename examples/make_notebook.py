"""Convert `tour.py` to `tour.ipynb`, with the results of a run: `python examples/make_notebook.py`.

The script is the source. The notebook is stored with its results, for readers who do not run it.
"""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
SCRIPT, NOTEBOOK = HERE / "tour.py", HERE / "tour.ipynb"


def converted() -> nbformat.NotebookNode:
    """Return the script as a notebook without results. The ids of cells are their positions, so they do not change."""
    notebook = jupytext.read(SCRIPT, fmt="py:percent")
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.NotebookNode()
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    return notebook


def run(notebook: nbformat.NotebookNode) -> None:
    """Run all cells in a kernel of this Python. Stores their results, without Spark's log output."""
    NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False, coalesce_streams=True).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.language_info = nbformat.from_dict({"name": "python"})


if __name__ == "__main__":
    made = converted()
    run(made)
    nbformat.write(made, NOTEBOOK)
    print(f"{NOTEBOOK}: {NOTEBOOK.stat().st_size / 1024:.0f} KiB")
