"""Programs that run one case alone."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.harness.verdict import Verdict


def describe_origin(verdict: Verdict, alone: str) -> str:
    """Return comments with the command that draws the case again, and with the difference."""
    difference = "\n".join(f"# {line}" for line in f"{verdict.kind}: {verdict.told}".splitlines())
    return f"# Found by: {alone}\n{difference}"


def write_program(folder: Path, name: str, text: str) -> Path:
    """Write the program of a case into a folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"\W", "_", f"case_{name}") + ".py")
    path.write_text(text, encoding="utf-8")
    return path
