"""`python -m sparkext doctor`: one line per check: what was found, what it is held against, and what to do about it.

The checks of `LOCAL_CHECKS` need nothing but this Python, so they can run before anything is installed.
The others look at a small local Spark session and at one of its Python workers.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from sparkext import __version__
from sparkext.errors import EnvironmentProblemError
from sparkext.jar import INSTALL_PYSPARK, installed_pyspark, jar_path, minor_version, supported_minors
from sparkext.java import OLDEST_JAVA, require_java
from sparkext.local_session import first_line, local_session
from sparkext.wording import LIMITS, counted, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFERENCE_PYSPARK = (4, 3)
TRANSFORMS_PYSPARK = ((3, 5), (4, 0))
"""No shim is for these: joins of the transforms in classic sessions were tested with them, and no more."""
OLDEST_PYTHON = (3, 10)
OLDEST_PACKAGES = {"numpy": (1, 26), "pandas": (2, 2), "pyarrow": (18, 0), "numba": (0, 61)}

_ENOUGH_DISK = 10 << 30
_ENOUGH_MEMORY = 512 << 20


class Status(Enum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """What one check found, and what to do about it when it is not as it should be. `more`: what that follows from."""

    status: Status
    title: str
    detail: str
    advice: str = ""
    more: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Status, title, detail and advice on one line, the rest below it."""
        line = f"{self.status.value:<4}  {self.title:<14}  {self.detail}"
        lines = [f"{line} -> {self.advice}" if self.advice else line, *self.more]
        return f"\n{'':<22}".join(lines)


def run(only: Sequence[str] = ()) -> int:
    """Print the findings as they come; returns the exit status, 1 if any check failed.

    `only` names some of `LOCAL_CHECKS`; without it, all of them and the session's checks run.
    """
    if not only:
        print(f"sparkext {__version__}: what it needs, and what is here. An arrow (->) says what to do.\n")
    told: list[Finding] = []
    for finding in findings(only):
        print(finding, flush=True)
        told.append(finding)
    failed = [finding.title for finding in told if finding.status is Status.FAIL]
    if failed or not only:
        print(f"\n{_verdict(failed, [finding.title for finding in told if finding.status is Status.WARN])}")
    return 1 if failed else 0


def _verdict(failed: Sequence[str], doubtful: Sequence[str]) -> str:
    if failed:
        return f"{counted(len(failed), 'check')} failed: {', '.join(failed)}. Joins cannot run before that is mended."
    if doubtful:
        return f"Joins can run here. {counted(len(doubtful), 'warning')}: {', '.join(doubtful)}."
    return "Joins can run here: all is as it should be."


def findings(only: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield the finding of every check. A check that raises is a failed check, and the next one runs."""
    broken = []
    for title in only or LOCAL_CHECKS:
        finding = _guarded(title, LOCAL_CHECKS[title])
        yield finding
        if finding.status is Status.FAIL:
            broken.append(title)
    if only:
        return
    if broken:
        yield Finding(Status.WARN, "session", "not started", f"mend first: {', '.join(broken)}")
        return
    try:
        yield from _session_findings()
    except Exception as error:
        yield Finding(Status.FAIL, "session", first_line(error), "start a session by hand and read Spark's log")


def _guarded(title: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        return Finding(Status.FAIL, title, first_line(error))


# --- what this Python can tell --------------------------------------------------------------------


def check_python() -> Finding:
    """Python itself."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding(Status.FAIL, "python", found, f"use Python {_dotted(OLDEST_PYTHON)} or later")
    return Finding(Status.OK, "python", f"{found}, {_dotted(OLDEST_PYTHON)} or later will do ({sys.executable})")


def check_java() -> Finding:
    """The Java that Spark would run."""
    try:
        java, version = require_java()
    except EnvironmentProblemError as error:
        detail, _, advice = str(error).partition(". ")
        return Finding(Status.FAIL, "java", detail, advice)
    return Finding(Status.OK, "java", f"{version}, {OLDEST_JAVA} or later will do ({java})")


def check_pyspark() -> Finding:
    """PySpark, against the versions that sparkext is tested with."""
    reference = _dotted(REFERENCE_PYSPARK)
    try:
        version = importlib.import_module("pyspark").__version__
    except ImportError as error:
        return Finding(Status.FAIL, "pyspark", f"cannot be imported: {error}", INSTALL_PYSPARK)
    release = _release(version)
    if release == REFERENCE_PYSPARK:
        return Finding(Status.OK, "pyspark", f"{version}, of the {reference} that sparkext is tested with")
    if _dotted(release) in supported_minors():
        detail = f"{version}: joins of both doors are tested with it, everything with {reference}"
        return Finding(Status.OK, "pyspark", detail)
    advice = f"{INSTALL_PYSPARK}, or compare results with those of Spark's own joins first"
    if release in TRANSFORMS_PYSPARK:
        detail = f"{version}: with it only joins of transforms in classic sessions are tested"
        return Finding(Status.WARN, "pyspark", detail, advice)
    return Finding(Status.WARN, "pyspark", f"{version}: sparkext is not tested with it", advice)


def check_jar() -> Finding:
    """The session extension's jar for this PySpark. Only SQL and plain joins need it."""
    try:
        minor = minor_version(installed_pyspark())
    except EnvironmentProblemError as error:
        return Finding(Status.WARN, "extension jar", f"not looked for: {error}")
    with suppress(EnvironmentProblemError):
        return Finding(Status.OK, "extension jar", f"{jar_path()}, which sparkext.configure adds to a session")
    detail = f"none for PySpark {minor}: transforms (pipelined_join) work, plain joins and SQL stay Spark's own"
    if minor in supported_minors():
        return Finding(Status.WARN, "extension jar", detail, "python -m sparkext jar --build")
    return Finding(Status.WARN, "extension jar", detail, f"a PySpark of {', '.join(supported_minors())} has one")


def check_progress() -> Finding:
    """The library that draws progress bars, which nothing else needs."""
    try:
        version = importlib.import_module("tqdm").__version__
    except ImportError:
        return Finding(Status.OK, "progress bars", "none without tqdm, which is optional", "pip install tqdm")
    return Finding(Status.OK, "progress bars", f"in notebooks and on terminals, by tqdm {version}")


def check_package(name: str) -> Finding:
    """One of the packages that kernels and workers are made of."""
    oldest = OLDEST_PACKAGES[name]
    remedy = f'pip install "{name}>={_dotted(oldest)}{",<3" if name == "pandas" else ""}"'
    try:
        version = importlib.import_module(name).__version__
    except ImportError as error:
        return Finding(Status.FAIL, name, f"cannot be imported: {error}", remedy)
    if _release(version) < oldest:
        return Finding(Status.FAIL, name, f"{version} is too old", remedy)
    if name == "pandas" and _release(version) >= (3, 0):
        return Finding(Status.WARN, name, f"{version}: PySpark {_dotted(REFERENCE_PYSPARK)} expects pandas 2", remedy)
    return Finding(Status.OK, name, f"{version}, {_dotted(oldest)} or later will do")


LOCAL_CHECKS: Mapping[str, Callable[[], Finding]] = {
    "python": check_python,
    "java": check_java,
    "pyspark": check_pyspark,
    **{name: lambda name=name: check_package(name) for name in OLDEST_PACKAGES},  # type: ignore[misc]
    "extension jar": check_jar,
    "progress bars": check_progress,
}


# --- what a session can tell ----------------------------------------------------------------------


def _session_findings() -> Iterator[Finding]:
    started = time.perf_counter()
    with local_session("sparkext doctor", {"spark.master": "local[1]"}) as spark:
        yield _guarded("session", lambda: check_session(spark.version, time.perf_counter() - started))
        yield _guarded("io encryption", lambda: check_io_encryption(spark))
        yield _guarded("local dirs", lambda: check_local_dirs(spark))
        try:
            facts = worker_facts(spark)
        except Exception as error:
            yield check_dead_worker(error)
            return
        for title, check in WORKER_CHECKS.items():
            yield _guarded(title, lambda check=check: check(facts))  # type: ignore[misc]


def check_session(version: str, seconds: float) -> Finding:
    """The JVM's Spark, against the Python package that drives it."""
    package = importlib.import_module("pyspark").__version__
    if _release(version) != _release(package):
        home = os.environ.get("SPARK_HOME", "unset")
        detail = f"the JVM runs Spark {version}, the package is pyspark {package} (SPARK_HOME is {home})"
        return Finding(Status.WARN, "session", detail, "unset SPARK_HOME, or install the pyspark of that Spark")
    return Finding(Status.OK, "session", f"a local Spark {version} started in {seconds:.1f} s")


def check_io_encryption(spark: SparkSession) -> Finding:
    """Whether Spark encrypts what it writes to local disks, broadcasts included."""
    if spark.sparkContext.getConf().get("spark.io.encryption.enabled", "false") == "true":
        advice = "set spark.io.encryption.enabled=false where that is allowed, or keep build sides small"
        detail = "on: each worker process holds its own copy of a build side, and the session extension plans no join"
        return Finding(Status.WARN, "io encryption", detail, advice)
    return Finding(Status.OK, "io encryption", "off: the workers of a node share one copy of a build side")


def check_local_dirs(spark: SparkSession) -> Finding:
    """Room and permission to write where Spark keeps build sides, indexes and spills."""
    configured = spark.sparkContext.getConf().get("spark.local.dir", tempfile.gettempdir())
    folders = os.environ.get("SPARK_LOCAL_DIRS", configured or "").split(",")
    locked = [folder for folder in folders if not os.access(folder, os.W_OK | os.X_OK)]
    if locked:
        advice = "create it, or set SPARK_LOCAL_DIRS to folders that can be written"
        return Finding(Status.FAIL, "local dirs", f"not writable: {', '.join(locked)}", advice)
    free = {folder: shutil.disk_usage(folder).free for folder in folders}
    room = ", ".join(f"{size(space)} free in {folder}" for folder, space in free.items())
    if min(free.values()) < _ENOUGH_DISK:
        advice = f"set SPARK_LOCAL_DIRS to a disk with {size(_ENOUGH_DISK)}, or keep build sides small"
        return Finding(Status.WARN, "local dirs", f"{room}: little for build sides and their indexes", advice)
    return Finding(Status.OK, "local dirs", f"{room}, for build sides and their indexes")


# --- what a worker can tell -----------------------------------------------------------------------


def worker_facts(spark: SparkSession) -> dict[str, Any]:
    """Ask one Python worker what it is and sees.

    `python` and `executable`; `imports`: names to versions; `cache`: the folder where numba keeps compiled
    kernels; `headroom`: bytes that the worker may take, and what binds them, or nothing; `memory`: pairs of name and
    value, from what the headroom follows. What could not be found out is `!` and the error.
    """

    def probe(batches: Iterator[Any]) -> Iterator[Any]:
        # A nested function travels by value, so that it runs even where sparkext cannot be imported.
        import importlib
        import json
        import platform
        import sys

        import pyarrow

        def attempt(ask: Callable[[], Any]) -> Any:
            try:
                return ask()
            except Exception as error:
                return f"!{type(error).__name__}: {error}"

        def version(name: str) -> Any:
            return importlib.import_module(name).__version__

        def cache() -> Any:
            jit = importlib.import_module("sparkext.kernels.jit")
            return jit.kernel(jit.frozen).stats.cache_path

        def headroom() -> Any:
            return importlib.import_module("sparkext.memory").process_probe().headroom() or ()

        def memory() -> Any:
            return importlib.import_module("sparkext.memory").process_probe().describe()

        for _ in batches:
            pass
        names = ("sparkext", "pyarrow", "numba")
        facts = {
            "python": platform.python_version(),
            "executable": sys.executable,
            "imports": {name: attempt(lambda name=name: version(name)) for name in names},  # type: ignore[misc]
            "cache": attempt(cache),
            "headroom": attempt(headroom),
            "memory": attempt(memory),
        }
        yield pyarrow.RecordBatch.from_pydict({"facts": [json.dumps(facts)]})

    [row] = spark.range(1, numPartitions=1).mapInArrow(probe, "facts string").collect()
    facts: dict[str, Any] = json.loads(row.facts)
    return facts


def check_dead_worker(error: Exception) -> Finding:
    """Why no worker answered."""
    text = str(error)
    chosen = os.environ.get("PYSPARK_PYTHON", "unset, so the python3 on PATH")
    causes = [line.strip() for line in text.splitlines() if re.search(r"PYTHON_VERSION_MISMATCH|Error:", line)]
    detail = f"no answer: {causes[0] if causes else first_line(error)} (PYSPARK_PYTHON is {chosen})"
    return Finding(Status.FAIL, "worker", detail, f"export PYSPARK_PYTHON={sys.executable}")


def check_worker_python(facts: Mapping[str, Any]) -> Finding:
    """The worker's Python, against this one."""
    detail = f"{facts['python']} ({facts['executable']})"
    if _release(facts["python"]) != sys.version_info[:2]:
        advice = f"export PYSPARK_PYTHON={sys.executable}"
        return Finding(Status.FAIL, "worker python", f"{detail}, but this is {_dotted(sys.version_info[:2])}", advice)
    return Finding(Status.OK, "worker python", f"{detail}, the driver's is of the same release")


def check_worker_imports(facts: Mapping[str, Any]) -> Finding:
    """What the worker can import."""
    detail = ", ".join(f"{name} {found.lstrip('!')}" for name, found in facts["imports"].items())
    if any(found.startswith("!") for found in facts["imports"].values()):
        advice = f"install sparkext for {facts['executable']}, or point PYSPARK_PYTHON at a Python that has it"
        return Finding(Status.FAIL, "worker imports", detail, advice)
    return Finding(Status.OK, "worker imports", f"{detail}: a worker can load what joins run on")


def check_numba_cache(facts: Mapping[str, Any]) -> Finding:
    """Where compiled kernels are kept; numba refuses to work when it finds no writable folder."""
    if facts["cache"].startswith("!"):
        advice = "set NUMBA_CACHE_DIR (or spark.executorEnv.NUMBA_CACHE_DIR) to a folder that workers can write"
        return Finding(Status.FAIL, "numba cache", facts["cache"].lstrip("!"), advice)
    return Finding(Status.OK, "numba cache", f"compiled kernels are kept in {facts['cache']}")


def check_memory(facts: Mapping[str, Any]) -> Finding:
    """The limits from which a worker chooses the size of its output."""
    broken = [found for found in (facts["memory"], facts["headroom"]) if isinstance(found, str)]
    if broken:
        return Finding(Status.FAIL, "memory", broken[0].lstrip("!"), "this is a fault in sparkext: report it")
    looked_at = tuple(f"{name}: {value}" for name, value in facts["memory"][:-1])
    if not facts["headroom"]:
        detail = "no limit is known, so budgets do not follow memory"
        return Finding(Status.WARN, "memory", detail, "set spark.sparkext.memory.maxBytes", looked_at)
    free, limit = facts["headroom"]
    detail = f"{size(free)} free for a worker, bound by {LIMITS[limit]}"
    if free < _ENOUGH_MEMORY:
        advice = f"free some: a worker takes a quarter of a GiB before it joins, {size(_ENOUGH_MEMORY)} is comfortable"
        return Finding(Status.WARN, "memory", detail, advice, looked_at)
    return Finding(Status.OK, "memory", detail, more=looked_at)


WORKER_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], Finding]] = {
    "worker python": check_worker_python,
    "worker imports": check_worker_imports,
    "numba cache": check_numba_cache,
    "memory": check_memory,
}


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
