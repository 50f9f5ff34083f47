"""Loads the modules that `code` writes, and caches their source and machine code on disk, as numba does for kernels.

    <cache>/cql/<name>/<name>.py                    the source
    <cache>/cql/<name>/__pycache__/                 the machine code, or
    <NUMBA_CACHE_DIR>/<name>_<digest of path>/      the same, if that variable is set

A module's folder is touched when a process loads it. After a process has added a module, the least recently loaded
modules are removed until the rest fit `MOST_BYTES`. Names of temporary files are random, as processes in containers
that share the cache may have equal ids.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import ModuleType

import numba

from sparkext.kernels.runtime.local_folder import create_private_folder
from sparkext.storage.container import private_file
from sparkext.storage.last_used import LruCache
from sparkext.storage.local_folder import local_folder

MOST_BYTES = 128 << 20
"""Limit of the source and machine code on disk. A graph of five queries needs 2.4 MiB."""

MOST_MODULES = 16
"""Number of modules that a process keeps loaded."""

LOADING_SECONDS = 3600
"""Modules loaded within this time are not removed: processes may still be compiling them."""

_PREFIX = "sparkext_cql_"
_modules: LruCache[str, ModuleType] = LruCache(MOST_MODULES)
_lock = Lock()


def load_module(text: str) -> ModuleType:
    """Return the module with a source text."""
    name = f"{_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    with _lock:
        module = _modules.get(name)
        if module is None:
            module = _modules[name] = _execute_source(name, text)
            for other in [other for other in sys.modules if other.startswith(_PREFIX) and other not in _modules]:
                del sys.modules[other]
    return module


def _execute_source(name: str, text: str) -> ModuleType:
    path = _write_source(_open_cache_folder(), name, text)
    module = ModuleType(name)
    sys.modules[name] = module  # cached machine code looks up its functions there
    exec(compile(text, path, "exec"), module.__dict__)
    return module


def _open_cache_folder() -> Path:
    """Return this user's private, persistent cache folder, or else a folder that Spark deletes with the executor."""
    try:
        base = Path(
            numba.config.CACHE_DIR
            or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "sparkext"
        )
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = create_private_folder(base / "cql")
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except (OSError, RuntimeError):  # the folder is not writable, or the user has no home
        pass
    return create_private_folder(local_folder() / "cql")


def _write_source(folder: Path, name: str, text: str) -> Path:
    """Write the source unless it exists, and return its path."""
    module_folder = create_private_folder(folder / name)
    path = module_folder / f"{name}.py"
    os.utime(module_folder)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with private_file(path) as stream:
            stream.write(text.encode())
        _evict(folder)
    return path


def _evict(folder: Path) -> None:
    """Remove the least recently loaded modules until the rest fit `MOST_BYTES`."""
    entries = sorted((_read_load_time(module_folder), module_folder) for module_folder in folder.iterdir())
    sizes = {module_folder: _measure_folders(_list_module_folders(module_folder)) for _, module_folder in entries}
    total = sum(sizes.values())
    for loaded, module_folder in entries:
        if total <= MOST_BYTES or loaded > time.time() - LOADING_SECONDS:
            break
        for part_folder in _list_module_folders(module_folder):
            shutil.rmtree(part_folder, ignore_errors=True)
        total -= sizes[module_folder]


def _list_module_folders(module_folder: Path) -> list[Path]:
    """Return the folders of a module, at most two: its own folder, and the folder of its machine code."""
    code_folders = Path(numba.config.CACHE_DIR).glob(f"{module_folder.name}_*") if numba.config.CACHE_DIR else ()
    return [module_folder, *code_folders]


def _read_load_time(module_folder: Path) -> float:
    try:
        return module_folder.stat().st_mtime
    except FileNotFoundError:  # another process has removed it
        return 0.0


def _measure_folders(folders: Sequence[Path]) -> int:
    total = 0
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                try:
                    total += (Path(parent) / name).stat().st_size
                except FileNotFoundError:
                    continue
    return total
