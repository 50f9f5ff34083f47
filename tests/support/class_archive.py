"""Archives the classes of a Spark session, so that JVMs map instead of parse them.

Run it as `python -m tests.support.class_archive`.

A session and its first queries need two thirds of the processor time with it, 10.6 instead of 16.2 s, and the test
suite starts dozens of sessions.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

_FOLDER = Path(__file__).parents[2] / "build"
_SILENT = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def archive_options() -> list[str]:
    """Return JVM options that map the archive, if one exists for these jars.

    A JVM ignores an archive that does not fit.
    """
    path = _archive()
    return [f"-XX:SharedArchiveFile={path}", *_SILENT] if path.exists() else []


def _archive() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    digest = hashlib.sha256()
    for jar in sorted((Path(spec.origin).parent / "jars").glob("*.jar")):
        state = jar.stat()
        digest.update(f"{jar} {state.st_size} {state.st_mtime_ns}\n".encode())
    return _FOLDER / f"classes-{digest.hexdigest()[:16]}.jsa"


def _make() -> None:
    """Run a session in a process of its own, whose JVM writes the archive when it ends."""
    path = _archive()
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    options = ["-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={part}", *_SILENT]
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join(options)}
    subprocess.run([sys.executable, "-m", __spec__.name, "run"], env=environment, check=True)
    if part.exists():
        part.replace(path)
    else:
        print("this JVM has written no archive of its classes: tests start without", file=sys.stderr)


def _run() -> None:
    """Load the classes that most tests use: files, both APIs, aggregates, rows from and to Python."""
    from pyspark.sql import functions as F

    import sparkext
    from tests.support.sessions import shared_session

    with (
        TemporaryDirectory() as folder,
        shared_session("class archive", Path(folder) / "warehouse", sparkext.configure) as spark,
    ):
        columns = "id AS k", "id * 2 AS v", "CAST(id AS STRING) AS s"
        spark.range(1000).selectExpr(*columns).write.parquet(f"{folder}/files")
        files = spark.read.parquet(f"{folder}/files")
        files.createOrReplaceTempView("files")
        spark.sql(
            "SELECT /*+ PIPELINED_JOIN(b) */ a.k, b.v FROM files a JOIN files b ON a.k = b.k WHERE a.v > 5"
        ).collect()
        other = files.selectExpr("k", "v AS w")
        files.join(other, "k", "left").groupBy("s").agg(F.sum("w")).orderBy("s").collect()
        rows = spark.createDataFrame([(1, "x")], "k long, z string")
        rows.transform(sparkext.pipelined_join(files, "k")).toArrow()
        driver = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    driver.stdin.close()
    driver.wait(timeout=600)


if __name__ == "__main__":
    _run() if sys.argv[1:] == ["run"] else _make()
