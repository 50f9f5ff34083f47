"""Finds the Java that Spark would start. Needs only the standard library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from sparkext.errors import EnvironmentProblemError

OLDEST_JAVA = 17

_GET_JAVA = (
    "Install a Java 17 or 21 runtime (Debian, Ubuntu: apt install openjdk-17-jre-headless; Fedora, RHEL: "
    "dnf install java-17-openjdk-headless; macOS: brew install openjdk@17), and set JAVA_HOME to it if it is "
    "not the first on PATH"
)


def require_java() -> tuple[Path, str]:
    """Return the Java executable that Spark would start, and its version.

    Raises `EnvironmentProblemError` if there is no Java, or if Spark cannot run on it.

    Like Spark, the function looks in JAVA_HOME if that is set, otherwise on PATH.
    """
    java = _find_java()
    try:
        completed = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblemError(f"{java} cannot be run ({error}). {_GET_JAVA}.") from error
    stated = re.search(r'version "([^"]+)"', completed.stderr + completed.stdout)
    if completed.returncode != 0 or stated is None:
        output = " ".join((completed.stderr + completed.stdout).split())[:200] or "nothing"
        raise EnvironmentProblemError(f"{java} -version printed no version, but: {output}. {_GET_JAVA}.")
    version = stated[1]
    if parse_java_major(version) < OLDEST_JAVA:
        raise EnvironmentProblemError(
            f"{java} is Java {version}, and Spark needs Java {OLDEST_JAVA} or later. {_GET_JAVA}."
        )
    return java, version


def _find_java() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise EnvironmentProblemError(
                f"JAVA_HOME is {home}, which contains no bin/java. Correct it or unset it. {_GET_JAVA}."
            )
        return java
    on_path = shutil.which("java")
    if on_path is None:
        raise EnvironmentProblemError(
            f"Spark needs Java {OLDEST_JAVA} or later, and there is no java on PATH. {_GET_JAVA}."
        )
    return Path(on_path)


def parse_java_major(version: str) -> int:
    """Return the feature release of a Java version: 8 for `1.8.0_292`, 17 for `17.0.15`, 24 for `24-ea`."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else numbers[0]
