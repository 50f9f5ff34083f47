"""Apache DataFusion Comet, a native accelerator for Spark, in an environment with the newest Spark that it supports.

`python -m bench.engines.comet --install` creates the environment in .data/comet, 700 MB: PySpark, this package from its
sources, and Comet's jar from Maven Central. Only this command downloads anything. The cases of Comet run in that
environment: `.data/comet/venv/bin/python -m bench comet`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
import sys
import urllib.request
from pathlib import Path

from bench.engines import environments

COMET, SPARK = "1.2.0", "4.1"
_ROOT = Path(__file__).parents[2]
HOME = _ROOT / ".data" / "comet"
_ARTIFACT = f"comet-spark-spark{SPARK}_2.13"
_JAR = HOME / f"{_ARTIFACT}-{COMET}.jar"
_URL = f"https://repo1.maven.org/maven2/org/apache/datafusion/{_ARTIFACT}/{COMET}/{_JAR.name}"


def settings(off_heap_mib: int) -> dict[str, str]:
    """Return the settings of Comet's guides: its plugin, its shuffle manager, and off-heap memory."""
    return {
        "spark.plugins": "org.apache.spark.CometPlugin",
        "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
        "spark.comet.enabled": "true",
        "spark.comet.exec.enabled": "true",
        "spark.comet.exec.shuffle.enabled": "true",
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": f"{off_heap_mib}m",
        "spark.jars": str(_JAR),
        "spark.driver.extraClassPath": str(_JAR),
    }


def versions() -> dict[str, str]:
    """Return the versions of Comet and of Spark in this environment, for results."""
    return {"comet": COMET, "comet_spark": importlib.metadata.version("pyspark")}


def is_installed() -> bool:
    """Return whether this process runs in the environment of Comet; print the reason if not."""
    if _JAR.exists() and importlib.metadata.version("pyspark").startswith(f"{SPARK}."):
        return True
    print("skipped: `make bench-comet` fetches Comet and a Spark that it runs in, and runs this case there")
    return False


def install() -> None:
    """Create the environment, and download the jar, whose SHA-1 has to match Maven Central's."""
    home = HOME / "venv"
    environments.create(home, f"pyspark=={SPARK}.*", "setuptools>=77", "tpchgen-cli>=3", "tpcgen-cli>=4")
    python = str(environments.python_of(home))
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--editable", f"{_ROOT}[bench]"], check=True
    )
    subprocess.run([python, "-m", "sparkext", "jar", "--build"], check=True, cwd=_ROOT)
    if not _JAR.exists():
        with urllib.request.urlopen(_URL, timeout=300) as found, urllib.request.urlopen(f"{_URL}.sha1") as stated:
            content, checksum = found.read(), stated.read().decode().split()[0]
        if hashlib.sha1(content).hexdigest() != checksum:
            raise RuntimeError(f"{_URL} arrived damaged")
        _JAR.write_bytes(content)


if __name__ == "__main__":
    sys.exit(environments.main(__doc__, install, f"{HOME} is ready: {HOME}/venv/bin/python -m bench comet"))
