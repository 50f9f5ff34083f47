"""The address space of a worker, which Spark limits (RLIMIT_AS) where `spark.executor.pyspark.memory` is set.

What is only reserved counts there, too, and so do libraries and mapped files. Measured: of a worker that has loaded all
that a pipeline needs, 1.7 GiB with the allocators' usual reserves (Arrow's takes a GiB at once, the system's 64 MiB for
each thread) and 0.55 GiB without them.
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
from sparkext.wording import size

LEAST_BYTES = 640 << 20
"""Below this the session extension declines joins (`Acceptance.scala`)."""

LEAST_BYTES_OF_BARE = 832 << 20
"""The same for transforms, unless their workers are forked from `sparkext.daemon`: others load all within the limit."""

_SPARKS_LIMIT = "PYSPARK_EXECUTOR_MEMORY_MB"  # what Spark tells a worker, and the process that it is forked from
_SETTING = "spark.executor.pyspark.memory"
_ARROWS_ALLOCATOR = "ARROW_DEFAULT_MEMORY_POOL"
_M_ARENA_MAX = -8


def limit() -> int | None:
    """Return the limit of this process in bytes, None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def spare_for_workers() -> None:
    """Reserve little, where the workers that are forked from this process will have a limit.

    Only before pyarrow is loaded. A choice of the user's stays.
    """
    if _SPARKS_LIMIT in os.environ:
        os.environ.setdefault(_ARROWS_ALLOCATOR, "system")
        _use_one_arena()


def spare() -> None:
    """Reserve little from now on, if this process has a limit."""
    if limit() is not None:
        import pyarrow as pa

        if _ARROWS_ALLOCATOR not in os.environ:
            pa.set_memory_pool(pa.system_memory_pool())
        _use_one_arena()


def check_setting(conf: Callable[[str], str | None]) -> None:
    """Make sure that the limit that Spark gives workers of transforms, if any, is enough. `conf`: a session's settings.

    Raises
    ------
    EnvironmentProblemError
        It is not. Names the limit and the least one.
    """
    setting = (conf(_SETTING) or "").strip()
    if not setting:
        return
    whole = parse_bytes(f"{setting}m" if setting.isdigit() else setting)
    each = whole // max(1, int(conf("spark.executor.cores") or 1))
    is_forked = conf("spark.python.daemon.module") == "sparkext.daemon"
    least = LEAST_BYTES if is_forked else LEAST_BYTES_OF_BARE
    if each < least:
        raise EnvironmentProblemError(
            f"spark.executor.pyspark.memory leaves a worker {size(each)} of address space; a pipelined join"
            f" needs at least {size(least)}: unset it, or raise it (the cores of an executor share it)"
        )


def check_room() -> None:
    """Make sure that the limit, if there is one, leaves enough to run a pipeline.

    Raises
    ------
    EnvironmentProblemError
        It does not. Names the limit and the least one.
    """
    found = limit()
    if found is not None and found < LEAST_BYTES:
        raise EnvironmentProblemError(
            f"this worker may use {size(found)} of address space (spark.executor.pyspark.memory, shared by"
            f" the spark.executor.cores); a pipelined join needs at least {size(LEAST_BYTES)}: raise it, or unset it"
        )


@contextmanager
def mapping(what: str) -> Iterator[None]:
    """Say what does not fit where a file cannot be mapped for want of address space.

    Raises
    ------
    BuildSideTooLargeError
        In place of an OSError of that kind.
    """
    try:
        yield
    except OSError as error:
        if os.strerror(errno.ENOMEM) not in str(error):  # pyarrow's errors have no number
            raise
        found = limit()
        limited = "" if found is None else f" of {size(found)} (spark.executor.pyspark.memory)"
        raise BuildSideTooLargeError(
            f"{what} does not fit in the worker's address space{limited}; mapped files count towards it: raise that"
            " limit or unset it, filter the build side, select fewer columns, or set spark.sparkext.mode=off"
        ) from error


def _use_one_arena() -> None:
    """Have the C library's allocator keep one arena for all threads: it reserves 64 MiB for each."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
