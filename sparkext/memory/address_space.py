"""The address space of a worker. Spark limits it (RLIMIT_AS) if `spark.executor.pyspark.memory` is set.

Reserved but unused memory counts towards this limit, and so do libraries and mapped files. Measured for a worker that
has loaded everything a pipeline needs: 1.7 GiB with the allocators' default reserves (Arrow's reserves a GiB at once,
the system's 64 MiB per thread), and 0.55 GiB without them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sparkext.config import parse_bytes
from sparkext.errors import BuildSideTooLargeError, EnvironmentProblemError
from sparkext.wording import format_bytes

LEAST_BYTES = 640 << 20
"""Below this limit the session extension declines joins (`Acceptance.scala`)."""

LEAST_BYTES_OF_BARE = 832 << 20
"""The same for transforms whose workers are not forked from `sparkext.daemon`: they load all modules within it."""

_SPARKS_LIMIT = "PYSPARK_EXECUTOR_MEMORY_MB"  # set by Spark for a worker and for the process that it is forked from
_SETTING = "spark.executor.pyspark.memory"
_ARROWS_ALLOCATOR = "ARROW_DEFAULT_MEMORY_POOL"
_M_ARENA_MAX = -8


def read_limit() -> int | None:
    """Return the address space limit of this process in bytes, None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def spare_for_workers() -> None:
    """Reduce reservations of address space, if the workers forked from this process will have a limit.

    Call this before pyarrow is loaded. An allocator chosen by the user is kept.
    """
    if _SPARKS_LIMIT in os.environ:
        os.environ.setdefault(_ARROWS_ALLOCATOR, "system")
        _use_one_arena()


def spare() -> None:
    """Reduce reservations of address space from now on, if this process has a limit."""
    if read_limit() is not None:
        import pyarrow as pa

        if _ARROWS_ALLOCATOR not in os.environ:
            pa.set_memory_pool(pa.system_memory_pool())
        _use_one_arena()


def check_setting(conf: Callable[[str], str | None]) -> None:
    """Check that Spark's limit for workers of transforms is sufficient, if it is set. `conf`: a session's settings.

    Raises
    ------
    EnvironmentProblemError
        The limit is too low. The message gives it and the required minimum.
    """
    setting = (conf(_SETTING) or "").strip()
    if not setting:
        return
    total = parse_bytes(f"{setting}m" if setting.isdigit() else setting)
    per_worker = total // max(1, int(conf("spark.executor.cores") or 1))
    is_forked = conf("spark.python.daemon.module") == "sparkext.daemon"
    least = LEAST_BYTES if is_forked else LEAST_BYTES_OF_BARE
    if per_worker < least:
        raise EnvironmentProblemError(
            f"spark.executor.pyspark.memory leaves a worker {format_bytes(per_worker)} of address space; a pipelined"
            f" join needs at least {format_bytes(least)}: unset it, or raise it (the cores of an executor share it)"
        )


def check_process_limit() -> None:
    """Check that this process's limit, if there is one, is sufficient to run a pipeline.

    Raises
    ------
    EnvironmentProblemError
        The limit is too low. The message gives it and the required minimum.
    """
    limit = read_limit()
    if limit is not None and limit < LEAST_BYTES:
        raise EnvironmentProblemError(
            f"this worker may use {format_bytes(limit)} of address space (spark.executor.pyspark.memory, shared by the"
            f" spark.executor.cores); a pipelined join needs at least {format_bytes(LEAST_BYTES)}: raise it, or"
            " unset it"
        )


@contextmanager
def explain_mapping_errors(data: str) -> Iterator[None]:
    """Replace the OSError of a mapping that exceeds the address space by an error that names the mapped `data`.

    Raises
    ------
    BuildSideTooLargeError
        The mapping exceeds the address space.
    """
    try:
        yield
    except OSError as error:
        if os.strerror(errno.ENOMEM) not in str(error):  # pyarrow's errors have no errno
            raise
        limit = read_limit()
        limited = "" if limit is None else f" of {format_bytes(limit)} (spark.executor.pyspark.memory)"
        raise BuildSideTooLargeError(
            f"{data} does not fit in the worker's address space{limited}; mapped files count towards it: raise that"
            " limit or unset it, filter the build side, select fewer columns, or set spark.sparkext.mode=off"
        ) from error


def _use_one_arena() -> None:
    """Restrict the C library's allocator to one arena for all threads: it reserves 64 MiB per arena."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
