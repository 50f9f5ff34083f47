"""The jar of the session extension: its path for a version of Spark, and its build.

The sources are in `jvm/`: `common/` for all versions, and layers such as `spark-4.1+/` for the internals of Spark that
differ. A file of a layer is compiled for this version and later ones, up to the next layer with a file of the same
name. The pyspark package has everything that the compilation needs: Spark's jars, which include the Scala compiler.
Nothing is downloaded. This module needs only the standard library, because the build of the package runs it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparkext._version import __version__
from sparkext.config import REGISTRY, ConfigKey
from sparkext.errors import EnvironmentProblemError
from sparkext.jvm_constants import (
    BATCH_GROWTH,
    FIRST_BATCH_ROWS,
    MOST_DECIMAL_BYTES,
    PARQUET_TYPES,
    S3_AMBIENT_PROVIDERS,
    S3_AWS_ENDPOINT,
    S3_DEFAULT_PROVIDERS,
    S3_ENDPOINT,
    S3_UNMAPPED,
    SPARK_TYPES,
)
from sparkext.memory.address_space import LEAST_BYTES
from sparkext.plans.expressions.evaluators import EVALUATORS
from sparkext.plans.pipeline.spec import MOST_COMPARED, SPEC_VERSION
from sparkext.plans.pipeline.top import MOST_TOP_ROWS
from sparkext.plans.shuffle.bucket_costs import (
    COSTS,
    SECONDS_PER_BLOCK,
    SECONDS_PER_BUILD_ROW,
    SECONDS_PER_BYTE,
    SECONDS_PER_ROW_OF_SEVERAL,
)
from sparkext.plans.shuffle.routing import BUCKETS_PER_PARTITION, MANY_BUCKETS
from sparkext.plans.shuffle.waves import LEAST_PARTITION_SECONDS, PARTITION_BUILD_BYTES, PARTITION_SECONDS
from sparkext.spark.java import require_java

_PACKAGE = Path(__file__).parents[1]
_SOURCES = _PACKAGE / "jvm"
SPARK_MINORS = ("4.0", "4.1", "4.2", "4.3")
"""The minor versions of Spark that the sources are for, in ascending order."""
JAR_FOLDER = _PACKAGE / "jars"
CONDITIONS = _PACKAGE / "error_conditions.json"
_SHARED = "io/sparkext/shared.json"
INSTALL_PYSPARK = 'pip install "pyspark[connect]>=4.0,<4.4"'
"""The command that installs the same PySpark as the extra `spark`. It works in a clone and with a wheel as well, and
pip chooses the newest version that its Python supports."""
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


def locate_jar() -> Path:
    """Return the path of the jar for the installed PySpark.

    Raises
    ------
    EnvironmentProblemError
        There is no PySpark with Spark's jars, or no jar of the extension for it.
    """
    minor = read_minor_version(installed_pyspark())
    path = JAR_FOLDER / format_jar_name(minor)
    if not path.exists():
        have = sorted(jar.name for jar in JAR_FOLDER.glob("*.jar"))
        raise EnvironmentProblemError(
            f"there is no jar for Spark {minor}: {path} is missing (found: {', '.join(have) or 'none'}). Sources exist"
            f" for Spark {', '.join(SPARK_MINORS)}; build it with `python -m sparkext jar --build`, or use"
            " pipelined_join, which needs no jar"
        )
    return path


def format_jar_name(minor: str) -> str:
    """Return the file name of the jar for a minor version of Spark."""
    return f"sparkext_2.13-{minor}.jar"


def list_sources(minor: str) -> list[Path]:
    """Return the Scala sources for a minor version of Spark: `common/`, and the newest of each file in its layers."""
    layers = [f"spark-{other}+" for other in SPARK_MINORS[: SPARK_MINORS.index(minor) + 1]]
    newest = {path.name: path for layer in layers for path in (_SOURCES / layer).glob("*.scala")}
    return sorted([*(_SOURCES / "common").rglob("*.scala"), *newest.values()])


def installed_pyspark() -> Path:
    """Return the folder of the PySpark package, without importing it.

    It may belong to a Spark distribution in `PYTHONPATH` or `SPARK_HOME`.

    Raises
    ------
    EnvironmentProblemError
        There is no PySpark, or it has no jars (the Connect-only client).
    """
    spec, home = find_spec("pyspark"), os.environ.get("SPARK_HOME")
    package = None if spec is None or spec.origin is None else Path(spec.origin).parent
    folders = [] if package is None else [package]
    if home is not None:
        folders += [Path(home) / "python" / "pyspark", Path(home)]
    for folder in folders:
        if (folder / "version.py").is_file() and _find_jars(folder) is not None:
            return folder
    if package is not None:
        raise EnvironmentProblemError(
            f"the PySpark in {package} has no jars: it is a client, and only the Spark server can load the extension"
        )
    remedy = "set SPARK_HOME to the folder of a Spark distribution" if home is None else f"correct SPARK_HOME: {home}"
    raise EnvironmentProblemError(f"PySpark is not installed: {INSTALL_PYSPARK}, or {remedy}")


def comes_with_spark(name: str) -> bool:
    """Return whether a jar of this name is in the folder of Spark's own jars, as in container images."""
    folder = _find_jars(installed_pyspark())
    return folder is not None and (folder / name).exists()


def _find_jars(pyspark: Path) -> Path | None:
    """Return the folder of Spark's jars: inside the pip package, or next to `python` in a distribution."""
    folders = (pyspark / "jars", pyspark.parent.parent / "jars")
    return next((folder for folder in folders if any(folder.glob("spark-core_*.jar"))), None)


def read_minor_version(pyspark: Path) -> str:
    """Return `4.3` for a PySpark folder of any 4.3."""
    stated = re.search(r"""__version__[^=]*=\s*["'](\d+\.\d+)""", (pyspark / "version.py").read_text())
    if stated is None:
        raise EnvironmentProblemError(f"{pyspark / 'version.py'} does not state a version")
    return stated[1]


def build_jar(pyspark: Path, folder: Path = JAR_FOLDER) -> Path:
    """Compile the jar for this PySpark into `folder`, unless it is up to date, and return its path. Takes seconds.

    Raises
    ------
    EnvironmentProblemError
        There is no Java, there are no jars or sources for this version, or the compilation fails.
    """
    minor = read_minor_version(pyspark)
    if minor not in SPARK_MINORS:
        raise EnvironmentProblemError(f"no sources for Spark {minor}: there are some for {', '.join(SPARK_MINORS)}")
    sources = list_sources(minor)
    shared = _render_shared(sources)
    path = folder / format_jar_name(minor)
    if path.exists() and _read_shared(path) == shared:
        return path
    java, _ = require_java()
    jars = _find_jars(pyspark)
    if jars is None:
        raise EnvironmentProblemError(f"the PySpark in {pyspark} has no jars to compile against")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sparkext-") as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        classpath = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
        options = ["-deprecation", "-feature", "-Werror", "-Xlint:unused", "-classpath", classpath, "-d", str(classes)]
        command = [str(java), "-cp", f"{jars}/*", "scala.tools.nsc.Main", *options, *map(str, sources)]
        compiled = subprocess.run(command, capture_output=True, text=True)
        if compiled.returncode != 0:
            raise EnvironmentProblemError(f"the Scala sources do not compile:\n{compiled.stdout}{compiled.stderr}")
        part = path.with_suffix(".part")
        _pack(classes, shared, part)
        part.replace(path)
    return path


def _render_shared(sources: Sequence[Path]) -> str:
    """Return the constants of both languages as JSON, which `Shared.scala` reads, with a digest of the sources."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    conditions = json.loads(CONDITIONS.read_text(encoding="utf-8"))
    shared = {
        "version": __version__,
        "sources": digest.hexdigest(),
        "least_address_space": LEAST_BYTES,
        "options": [_describe_option(key) for key in REGISTRY],
        "spec_version": SPEC_VERSION,
        "most_top_rows": MOST_TOP_ROWS,
        "partitions": {
            **asdict(COSTS),
            "per_build_row": SECONDS_PER_BUILD_ROW,
            "per_row_of_several": SECONDS_PER_ROW_OF_SEVERAL,
            "per_byte": SECONDS_PER_BYTE,
            "per_block": SECONDS_PER_BLOCK,
            "partition_seconds": PARTITION_SECONDS,
            "least_seconds": LEAST_PARTITION_SECONDS,
            "build_bytes": PARTITION_BUILD_BYTES,
        },
        "buckets_per_partition": BUCKETS_PER_PARTITION,
        "many_buckets": MANY_BUCKETS,
        "first_batch_rows": FIRST_BATCH_ROWS,
        "batch_growth": BATCH_GROWTH,
        "key_types": SPARK_TYPES,
        "evaluators": {evaluator.name: asdict(evaluator) for evaluator in EVALUATORS},
        "most_compared": MOST_COMPARED,
        "parquet_types": PARQUET_TYPES,
        "most_decimal_bytes": MOST_DECIMAL_BYTES,
        "s3_unmapped": S3_UNMAPPED,
        "s3_endpoint": S3_ENDPOINT,
        "s3_aws_endpoint": S3_AWS_ENDPOINT,
        "s3_default_providers": S3_DEFAULT_PROVIDERS,
        "s3_ambient_providers": S3_AMBIENT_PROVIDERS,
        "reasons": {
            name: reason["message"] for group in conditions["reasons"] for name, reason in group["reasons"].items()
        },
    }
    return json.dumps(shared, indent=1) + "\n"


def _describe_option(key: ConfigKey[Any]) -> dict[str, object]:
    return {
        "name": key.name,
        "type": key.type.name,
        "default": key.type.render(key.default),
        "expected": key.expected,
        "choices": key.choices,
        "least": key.least,
        "most": key.most,
        "replacement": key.type.render(key.replacement),
        "of_application": key.of_application,
    }


def _read_shared(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as jar:
            return jar.read(_SHARED).decode()
    except (KeyError, zipfile.BadZipFile):
        return None


def _pack(classes: Path, shared: str, path: Path) -> None:
    """Write the jar. Equal sources give equal bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr(zipfile.ZipInfo(_SHARED, _ZIP_EPOCH), shared)
        for file in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(file.relative_to(classes).as_posix(), _ZIP_EPOCH)
            jar.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
