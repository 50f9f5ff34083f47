"""The decorators of kernels, and the read-only views that kernels take as inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from sparkext.kernels.runtime.code_cache import cached

F = TypeVar("F", bound=Callable[..., Any])
AnyArray = npt.NDArray[Any]

JIT_ENABLED = not numba.config.DISABLE_JIT


def kernel(function: F) -> F:
    """Compile `function` with the options that hold for all kernels.

    - `nogil`: kernels never touch Python objects, so threads of one task may run them concurrently.
    - cached: a worker process loads machine code from disk instead of compiling it again.
    - `error_model="numpy"`: no hidden branches for division by zero.
    - never `fastmath`: NaN and -0.0 have a meaning in join keys.
    """
    return cast(F, cached(numba.njit(nogil=True, error_model="numpy")(function)))


def inlined(function: F) -> F:
    """Compile a helper that kernels call per row, and that LLVM inlines. It is not called from Python.

    It must not allocate: reference counting is compiled out. Otherwise numba would count references to its array
    arguments for every row, which takes four times as long as hashing a short string.
    """
    return cast(F, cached(numba.njit(nogil=True, error_model="numpy", _nrt=False)(function)))


def generated(function: F) -> F:
    """Compile a function that was created at run time, and has no source file by which machine code is cached."""
    return cast(F, numba.njit(nogil=True, error_model="numpy")(function))


def embedded(function: F) -> F:
    """Compile a generated function that only compiled code calls.

    Without the wrappers by which Python or C would call it, it needs half the memory, which numba never frees.
    """
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(nogil=True, error_model="numpy", **options)(function))


def freeze(array: AnyArray) -> AnyArray:
    """Return a read-only, C-contiguous view of `array`.

    Numba compiles a kernel separately for writable and for read-only inputs. Arrow buffers and mapped index files are
    read-only, so every kernel input is passed read-only and each kernel is compiled once.
    """
    if not array.flags.writeable:
        return array
    view: AnyArray = array.view()
    view.flags.writeable = False
    return view


NO_MASK: npt.NDArray[np.uint8] = freeze(np.empty(0, dtype=np.uint8))
"""The validity mask that means "every row is valid"."""
