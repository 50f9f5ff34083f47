"""`configure`: adds the session extension to a session builder."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sparkext.errors import EnvironmentProblemError
from sparkext.spark import jvm
from sparkext.spark.extension import EXTENSION
from sparkext.spark.jar import comes_with_spark, locate_jar
from sparkext.spark.launch import parse_submit_arguments, read_builder_options, read_default_conf, split_list
from sparkext.spark.worker_python import is_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Load the session extension, which plans plain SQL and DataFrame joins as pipelines.

        spark = sparkext.configure(SparkSession.builder).getOrCreate()

    The function sets these keys, unless they are set already (in the builder, in `spark-defaults.conf`, by
    `spark-submit`, in `PYSPARK_SUBMIT_ARGS`):

    - `spark.jars` and `spark.sql.extensions`: the jar and the extension are appended to existing values. Under
      `spark-submit`, whose JVM runs already, `--jars` has to name the jar;
    - `spark.sql.join.asofJoin.enabled`: Spark 4.3 requires it for `ASOF JOIN` in SQL;
    - `spark.sparkext.python`: PYSPARK_PYTHON, or this Python if that is not set, if the master is local and
      `spark.pyspark.python` is not set;
    - `spark.python.daemon.module`: the package's daemon, if the master is local and Spark runs functions in this
      Python. User functions then share workers with pipelines: workers are forked from a process that has loaded numba
      and the kernels.

    User functions run in the Python that PYSPARK_PYTHON names, as without the extension. Functions of this package run
    in `spark.sparkext.python`.

    Return the builder. A session that already has the extension is not changed. With Spark Connect, the function works
    only for servers that the builder starts (`remote("local[*]")`); PySpark then warns that these keys cannot be set
    again for the session.

    Raises
    ------
    EnvironmentProblemError
        There is no PySpark, or no jar for it; Spark's JVM was started without the jar (the JVM outlives its sessions,
        and `spark-submit` starts it before this Python); `PYSPARK_SUBMIT_ARGS` names jars without it; or the builder is
        for a Connect server elsewhere.
    """
    running = jvm.read_running_conf("spark.sql.extensions")
    in_jvm = jvm.finds(EXTENSION)
    if EXTENSION in split_list(running) and in_jvm:
        return builder
    if running is not None or in_jvm is False:
        raise EnvironmentProblemError(
            "Spark is running already, without the extension, and jars cannot be added to a running JVM: stop the"
            f" session and restart Python, or start Spark with --jars {locate_jar()} --conf"
            f" spark.sql.extensions={EXTENSION}"
        )
    options = {**read_default_conf(), **read_builder_options(builder)}
    remote = options.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    if remote.startswith("sc:"):
        raise EnvironmentProblemError(
            f"a client cannot load the extension into the Connect server {remote}. Start the server with --jars and the"
            f" path that `python -m sparkext jar` prints there, and with --conf spark.sql.extensions={EXTENSION}. Its"
            " sessions then do not need sparkext.configure"
        )
    if not in_jvm:
        jar = locate_jar()
        named = parse_submit_arguments().get("spark.jars")
        if named is not None and not _is_loaded(jar.name, named, options.get("spark.driver.extraClassPath", "")):
            raise EnvironmentProblemError(
                f"PYSPARK_SUBMIT_ARGS names jars ({named}), so Spark loads no other jars: add {jar} to them"
            )
        builder.config("spark.jars", _append_item(options.get("spark.jars"), str(jar)))
    builder.config("spark.sql.extensions", _append_item(options.get("spark.sql.extensions"), EXTENSION))
    builder.config("spark.sql.join.asofJoin.enabled", options.get("spark.sql.join.asofJoin.enabled", "true"))
    is_local = options.get("spark.master", remote or "local").startswith("local")
    shares_workers = is_local and is_this_python(os.environ.get("PYSPARK_PYTHON", "python3"))
    daemon = options.get("spark.python.daemon.module", "sparkext.daemon" if shares_workers else None)
    if daemon is not None:
        builder.config("spark.python.daemon.module", daemon)
    if is_local and not ({"spark.sparkext.python", "spark.pyspark.python"} & options.keys()):
        builder.config("spark.sparkext.python", os.environ.get("PYSPARK_PYTHON", sys.executable))
    return builder


def _is_loaded(jar: str, named: str, class_path: str) -> bool:
    """Return whether a jar of this name, in any folder, is among `named`, on the class path, or part of Spark."""
    paths = [*split_list(named), *class_path.split(":")]
    return any(path.rsplit("/", 1)[-1] in (jar, "*") for path in paths) or comes_with_spark(jar)


def _append_item(existing: str | None, item: str) -> str:
    items = split_list(existing)
    return ",".join(items if item in items else [*items, item])
