"""`python -m sparkext doctor`: prints a line per check with the finding, the requirement and a remedy.

The checks in `LOCAL_CHECKS` need only this Python, so they can run before anything is installed. The checks in
`session_checks` examine a Spark session and its workers: a small local session, or the session of `spark-submit`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from sparkext._version import __version__
from sparkext.cli.finding import Finding, Status, format_release, parse_release, run_guarded
from sparkext.errors import EnvironmentProblemError
from sparkext.spark.jar import INSTALL_PYSPARK, SPARK_MINORS, installed_pyspark, locate_jar, read_minor_version
from sparkext.spark.java import OLDEST_JAVA, require_java
from sparkext.wording import format_count

REFERENCE_PYSPARK = (4, 3)
TRANSFORMS_PYSPARK = ((3, 5),)
"""Versions without a shim. Only joins of the transforms in classic sessions are tested with them."""
OLDEST_PYTHON = (3, 10)
OLDEST_PACKAGES = {"numpy": (1, 26), "pandas": (2, 2), "pyarrow": (18, 0), "numba": (0, 61)}


def run(only: Sequence[str] = ()) -> int:
    """Print each finding after its check. Return the exit status, 1 if any check failed.

    `only` names some of `LOCAL_CHECKS`. If it is empty, all local checks and the checks of a session run.
    """
    if not only:
        print(f"sparkext {__version__}: requirements, and what was found. The text after an arrow (->) is a remedy.\n")
    reported: list[Finding] = []
    for finding in run_checks(only):
        print(finding, flush=True)
        reported.append(finding)
    failed, doubtful = (
        [finding.title for finding in reported if finding.status is status] for status in (Status.FAIL, Status.WARN)
    )
    if failed or not only:
        print(f"\n{_render_verdict(failed, doubtful)}")
    return 1 if failed else 0


def _render_verdict(failed: Sequence[str], doubtful: Sequence[str]) -> str:
    if failed:
        return (
            f"{format_count(len(failed), 'check')} failed: {', '.join(failed)}. Joins cannot run until this is fixed."
        )
    if doubtful:
        return f"Joins can run here. {format_count(len(doubtful), 'warning')}: {', '.join(doubtful)}."
    return "Joins can run here: everything is fine."


def run_checks(only: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield the finding of every check. A check that raises has failed, and the next check runs."""
    broken = []
    for title in only or LOCAL_CHECKS:
        finding = run_guarded(title, LOCAL_CHECKS[title])
        yield finding
        if finding.status is Status.FAIL and title in ("java", "pyspark"):
            broken.append(title)
    if only:
        return
    from sparkext.cli.session_checks import SESSION_CHECKS, run_session_checks, skip_checks

    yield from skip_checks(SESSION_CHECKS, f"fix {' and '.join(broken)} first") if broken else run_session_checks()


# --- checks of this Python ------------------------------------------------------------------------


def check_python() -> Finding:
    """Check the version of this Python."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding(Status.FAIL, "python", version, f"use Python {format_release(OLDEST_PYTHON)} or later")
    return Finding(
        Status.OK, "python", f"{version} ({format_release(OLDEST_PYTHON)} or later is required; {sys.executable})"
    )


def check_java() -> Finding:
    """Check the Java that Spark would start."""
    try:
        java, version = require_java()
    except EnvironmentProblemError as error:
        detail, _, advice = str(error).partition(". ")
        return Finding(Status.FAIL, "java", detail, advice)
    return Finding(Status.OK, "java", f"{version} ({OLDEST_JAVA} or later is required; {java})")


def check_pyspark() -> Finding:
    """Check PySpark against the versions with which sparkext is tested."""
    reference = format_release(REFERENCE_PYSPARK)
    try:
        version = importlib.import_module("pyspark").__version__
    except ImportError as error:
        return Finding(Status.FAIL, "pyspark", f"cannot be imported: {error}", INSTALL_PYSPARK)
    minor = parse_release(version)
    if minor == REFERENCE_PYSPARK:
        return Finding(Status.OK, "pyspark", f"{version}: sparkext is tested with {reference}")
    if format_release(minor) in SPARK_MINORS:
        detail = (
            f"{version}: joins of transforms and of the extension are tested with it, all features with {reference}"
        )
        return Finding(Status.OK, "pyspark", detail)
    advice = f"{INSTALL_PYSPARK}, or compare results with those of Spark's own joins first"
    if minor in TRANSFORMS_PYSPARK:
        detail = f"{version}: only joins of transforms in classic sessions are tested with it"
        return Finding(Status.WARN, "pyspark", detail, advice)
    return Finding(Status.WARN, "pyspark", f"{version}: sparkext is not tested with it", advice)


def check_jar() -> Finding:
    """Check that there is a jar of the session extension for this PySpark. Only SQL and plain joins need it."""
    try:
        minor = read_minor_version(installed_pyspark())
    except EnvironmentProblemError as error:
        return Finding(Status.WARN, "extension jar", f"not checked: {error}")
    with suppress(EnvironmentProblemError):
        return Finding(Status.OK, "extension jar", f"{locate_jar()}, which sparkext.configure adds to a session")
    detail = f"none for PySpark {minor}: transforms (pipelined_join) work, but Spark itself runs plain joins and SQL"
    if minor in SPARK_MINORS:
        return Finding(Status.WARN, "extension jar", detail, "python -m sparkext jar --build")
    return Finding(Status.WARN, "extension jar", detail, f"install PySpark {' or '.join(SPARK_MINORS)}")


def check_progress() -> Finding:
    """Check for tqdm, which draws progress bars and is optional."""
    try:
        version = importlib.import_module("tqdm").__version__
    except ImportError:
        return Finding(Status.OK, "progress bars", "none without tqdm, which is optional", "pip install tqdm")
    return Finding(Status.OK, "progress bars", f"in notebooks and on terminals, by tqdm {version}")


def check_package(name: str) -> Finding:
    """Check the version of a package that kernels and workers use."""
    oldest = OLDEST_PACKAGES[name]
    remedy = f'pip install "{name}>={format_release(oldest)}{",<3" if name == "pandas" else ""}"'
    try:
        version = importlib.import_module(name).__version__
    except ImportError as error:
        return Finding(Status.FAIL, name, f"cannot be imported: {error}", remedy)
    if parse_release(version) < oldest:
        return Finding(Status.FAIL, name, f"{version} is too old", remedy)
    if name == "pandas" and parse_release(version) >= (3, 0):
        return Finding(
            Status.WARN, name, f"{version}: PySpark {format_release(REFERENCE_PYSPARK)} expects pandas 2", remedy
        )
    return Finding(Status.OK, name, f"{version} ({format_release(oldest)} or later is required)")


LOCAL_CHECKS: Mapping[str, Callable[[], Finding]] = {
    "python": check_python,
    "java": check_java,
    "pyspark": check_pyspark,
    **{name: lambda name=name: check_package(name) for name in OLDEST_PACKAGES},  # type: ignore[misc]
    "extension jar": check_jar,
    "progress bars": check_progress,
}
