"""Virtual environments of engines that cannot run in the environment of this package."""

from __future__ import annotations

import argparse
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path


def python_of(home: Path) -> Path:
    """Return the interpreter of an environment."""
    return home / "bin" / "python"


def create(home: Path, *packages: str) -> None:
    """Create an environment, unless it exists, and install packages."""
    if not python_of(home).exists():
        venv.create(home, with_pip=True)
    subprocess.run([str(python_of(home)), "-m", "pip", "install", "--quiet", *packages], check=True)


def main(described: str, install: Callable[[], None], ready: str) -> int:
    """Run `install`, which the command line has to request by `--install`, and print that it is `ready`."""
    parser = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", required=True, help="download everything that is needed")
    parser.parse_args()
    install()
    print(ready)
    return 0
