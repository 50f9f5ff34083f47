"""Small suites on other minors of Spark and on other Pythons: `make versions`, or

    python tests/other_versions.py [spark MINOR …] [python INTERPRETER …]

Each PySpark is put into a folder of its own below `build`, beside the environment, which stays as it is; each Python
gets an environment there, with the package as a user installs it. Where there is a shim for the minor, the jar is
built, and tests of planned joins run as well. Everything that is missing is fetched: half a gigabyte a version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sparkext.jar import supported_minors

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
TRANSFORMS = ("tests/spark/test_ranges.py", "tests/spark/test_equivalence.py")
PLANNED = ("tests/extension/test_joins.py", "tests/extension/test_ranges.py", "tests/extension/test_theta.py")
WITHOUT_SPARK = ("tests/kernels", "tests/plans")
NEEDED = ("setuptools>=77", "pytest>=8.3", "pytest-timeout", "pytest-xdist", "hypothesis", "psutil", "duckdb")

# Spark 3.5 has no variants, and its cache fails for structs without fields.
NOT_IN_3_5 = ("test_payload_of_every_type", "test_a_null_struct_whose_fields_cannot_be_null")


def main(arguments: list[str]) -> int:
    """Run the suites of each version that is named; the exit status is 1 if any failed."""
    runs: dict[str, Callable[[str], int]] = {"spark": _on_spark, "python": _on_python}
    kind, failed, lines = "spark", False, []
    for argument in arguments:
        if argument in runs:
            kind = argument
            continue
        print(f"\n{kind} {argument}", flush=True)
        started = time.monotonic()
        try:
            status = runs[kind](argument)
        except subprocess.CalledProcessError as error:  # of an installation, or of the jar's build
            print(error)
            status = 1
        failed |= status != 0
        lines.append(f"{kind} {argument}: {'FAILED' if status else 'passed'}, {time.monotonic() - started:.0f} s")
    print("", *lines, sep="\n")
    return int(failed)


def _on_spark(minor: str) -> int:
    """The environment's own Python and packages, but for PySpark."""
    folder = BUILD / f"pyspark-{minor}"
    environment = os.environ | {"PYTHONPATH": str(folder)}
    environment.pop("SPARK_HOME", None)
    if not (folder / "pyspark").is_dir():
        _run(sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), f"pyspark[connect]=={minor}.*")
    suites = TRANSFORMS
    if minor in supported_minors():
        _run(sys.executable, "-m", "sparkext", "jar", "--build", environment=environment)
        suites = PLANNED + TRANSFORMS
    left_out = f"not ({' or '.join(NOT_IN_3_5)})" if minor == "3.5" else ""
    return _tests(Path(sys.executable), suites, "-k", left_out, environment=environment)


def _on_python(interpreter: str) -> int:
    """An environment of this Python with the package as it installs, and the newest PySpark for both."""
    folder = BUILD / f"environment-{Path(interpreter).name}"
    python = folder / "bin" / "python"
    if not python.exists():
        _run(interpreter, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "--upgrade", "pip", *NEEDED)
    _run(str(python), "-m", "pip", "install", "--quiet", "--upgrade", f"{ROOT}[spark]")
    return _tests(python, PLANNED + TRANSFORMS + WITHOUT_SPARK)


def _tests(python: Path, suites: tuple[str, ...], *options: str, environment: dict[str, str] | None = None) -> int:
    # The command and not the module, which would put this folder's sources before the installed package.
    command = [str(python.with_name("pytest")), "-q", "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder"]
    return _run(*command, *options, *suites, environment=environment, check=False)


def _run(*command: str, environment: dict[str, str] | None = None, check: bool = True) -> int:
    return subprocess.run(command, cwd=ROOT, env=environment, check=check).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
