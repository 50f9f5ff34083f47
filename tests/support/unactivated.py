"""The environment of a program whose virtual environment is not activated: `/path/to/venv/bin/python job.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def unactivated(folder: Path) -> dict[str, str]:
    """Return this process's environment without variables that name a Python; `python3` has no packages.

    That `python3` is created in `folder`.
    """
    bare = folder / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" -S "$@"\n')
    bare.chmod(0o755)
    named = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    environment = {key: value for key, value in os.environ.items() if key not in named}
    return {**environment, "PATH": os.pathsep.join([str(folder), environment["PATH"]])}
