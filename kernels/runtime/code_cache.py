"""The folder for the machine code of kernels: numba's own choice, else the executor's private folder."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from sparkext.kernels.runtime.local_folder import create_private_folder, local_folder


def cached(compiled: Any) -> Any:
    """Enable storing the machine code of a compiled function on disk, and return the function.

    Raises
    ------
    RuntimeError
        There is no writable folder for it.
    """
    from numba import config

    if config.DISABLE_JIT:
        return compiled
    try:
        compiled.enable_caching()
    except RuntimeError as error:  # neither NUMBA_CACHE_DIR nor the package nor the user's cache is writable
        chosen = config.CACHE_DIR
        try:
            config.CACHE_DIR = str(create_private_folder(local_folder() / "kernels"))
            compiled.enable_caching()
        except (OSError, RuntimeError) as cause:
            raise RuntimeError(
                f"no folder to cache compiled kernels in: {error}; {cause}: set NUMBA_CACHE_DIR (for executors,"
                " spark.executorEnv.NUMBA_CACHE_DIR) to a folder that this user can write to"
            ) from error
        finally:
            config.CACHE_DIR = chosen
    return compiled


def check_code_cache() -> None:
    """Raise the error that kernels would raise on import. numba is imported only if the package is not writable."""
    folder = Path(__file__).with_name("__pycache__")
    if not os.access(folder if folder.is_dir() else folder.parent, os.W_OK | os.X_OK):
        import_module("sparkext.kernels.keys.hashing")
