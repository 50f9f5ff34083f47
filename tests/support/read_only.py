"""A read-only package and a read-only home."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def read_only_install(folder: Path) -> dict[str, str]:
    """Copy the package into `folder` and return the variables with which `restricted_python` runs the copy."""
    package, home, temporary = folder / "installed" / "sparkext", folder / "home", folder / "tmp"
    ignored = shutil.ignore_patterns("__pycache__", "jars")
    for source, copy in (("sparkext", package), ("kernels", package / "kernels"), ("plans", package / "plans")):
        shutil.copytree(ROOT / source, copy, ignore=ignored)
    home.mkdir()
    temporary.mkdir()
    for path in (home, package, *package.rglob("*")):
        if path.is_dir():
            path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    named = {"NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "SPARK_LOCAL_DIRS"}
    environment = {key: value for key, value in os.environ.items() if key not in named}
    return {**environment, "HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(package.parent)}


def restricted_python() -> list[str]:
    """Return a command of this Python to which the permissions of files apply, even for root."""
    if os.geteuid() != 0:
        return [sys.executable]
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere without setpriv")
    return ["setpriv", "--bounding-set=-dac_override", sys.executable]
