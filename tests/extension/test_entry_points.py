"""The extension in sessions that Python does not start: `spark-sql`, `spark-submit` and Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from sparkext.spark.jar import locate_jar
from sparkext.spark.session import EXTENSION

HERE = Path(__file__).parent
PACKAGE = HERE.parent.parent
BIN = Path(pyspark.__file__).parent / "bin"
QUICK_START = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"

QUERY = """
    SELECT /*+ PIPELINED_JOIN(b) */ a.id, b.p
    FROM (SELECT id, id % 5 AS k FROM range(7)) a JOIN (SELECT id AS j, concat('p', id) AS p FROM range(3)) b ON k = j
"""


def said_by(command: list[str], folder: Path) -> str:
    """Run a program in a folder of its own, and return its stdout."""
    environment = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "SPARK_REMOTE")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")]))
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, cwd=folder, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_spark_sql(tmp_path: Path) -> None:
    settings = [
        f"spark.sql.extensions={EXTENSION}",
        "spark.sql.catalogImplementation=in-memory",
        "spark.ui.enabled=false",
        QUICK_START,
    ]
    options = ["--master", "local[2]", "--jars", str(locate_jar())]
    options += [part for setting in settings for part in ("--conf", setting)]
    said = said_by([str(BIN / "spark-sql"), *options, "-e", f"EXPLAIN {QUERY}; {QUERY} ORDER BY a.id;"], tmp_path)
    assert "PipelinedJoin [inner: a.k = b.j]" in said
    assert said.endswith("0\tp0\n1\tp1\n2\tp2\n5\tp0\n6\tp1\n"), said


def test_spark_submit(tmp_path: Path) -> None:
    script = HERE / "scripts" / "submitted.py"
    settings = ["spark.sql.extensions=org.example.Missing", "spark.ui.enabled=false", QUICK_START]
    options = ["--master", "local[2]", "--jars", str(locate_jar())]
    options += [part for setting in settings for part in ("--conf", setting)]
    assert "all is well" in said_by([str(BIN / "spark-submit"), *options, str(script)], tmp_path)


def test_spark_connect(tmp_path: Path) -> None:
    said_by([sys.executable, str(HERE / "scripts" / "through_connect.py")], tmp_path)
