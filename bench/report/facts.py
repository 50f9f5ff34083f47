"""Facts on which results depend: machine, versions, state of the checkout."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

from sparkext.errors import EnvironmentProblemError
from sparkext.spark.java import require_java

PACKAGES = (
    "numpy",
    "numba",
    "pyarrow",
    "pyspark",
    "duckdb",
    "polars",
    "datafusion",
    "sparkext",
)


def facts() -> dict[str, str]:
    """Return name and value of each fact to print above the results."""
    return {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "processor": _first(r"model name\s*:\s*(.+)", "/proc/cpuinfo") or platform.processor() or "unknown",
        "cores": str(len(os.sched_getaffinity(0))),
        "last-level cache": _cache(),
        "memory": _memory(),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "python": platform.python_version(),
        "java": _java(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "commit": _commit(),
    }


def header(found: dict[str, str]) -> str:
    """Format the facts, one per line."""
    width = max(map(len, found))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in found.items())


def _first(pattern: str, path: str) -> str | None:
    try:
        match = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return match[1].strip() if match else None


def _cache() -> str:
    sizes = [level.read_text().strip() for level in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, key=lambda size: int(re.sub(r"\D", "", size) or 0), default="unknown")


def _memory() -> str:
    kib = _first(r"MemTotal:\s*(\d+)", "/proc/meminfo")
    return "unknown" if kib is None else f"{int(kib) / 2**20:.1f} GiB"


def _java() -> str:
    try:
        return require_java()[1]
    except EnvironmentProblemError:
        return "absent"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _commit() -> str:
    try:
        named = _git("rev-parse", "--short", "HEAD")
        # Results of earlier runs do not change the measured code.
        changed = _git("status", "--porcelain", "--", ":/", ":(exclude,top)bench/results", ":(exclude,top)docs/plots")
        return f"{named}, with uncommitted changes" if changed else named
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    root = Path(__file__).parent
    ended = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return ended.stdout.strip()
