"""Compiles the modules that `code` writes, each text once: machine code is kept in files, as that of kernels is."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import numba

from sparkext.storage.local_folder import local_folder


@lru_cache(maxsize=64)
def module_of(text: str) -> ModuleType:
    """Return the module of a text."""
    name = f"cql_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    path = _written(_folder(), name, text)
    spec = importlib.util.spec_from_file_location(f"sparkext_{name}", path)
    assert spec is not None and spec.loader is not None, "it is a file of Python"
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # in which machine code that was kept finds its functions
    spec.loader.exec_module(module)
    return module


def _folder() -> Path:
    """Return a folder of this user's, in which modules stay."""
    base = numba.config.CACHE_DIR or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparkext"
    folder = Path(base) / "cql"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return local_folder()


def _written(folder: Path, name: str, text: str) -> Path:
    """Write a module unless it is there; another process may do so at the same time."""
    path = folder / f"{name}.py"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        part = folder / f".{name}.{os.getpid()}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return path
