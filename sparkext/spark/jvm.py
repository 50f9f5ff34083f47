"""The JVM that this process is connected to, if there is one."""

from __future__ import annotations

import os
from typing import Any


def started_by_spark_submit() -> bool:
    """Return whether `spark-submit` has started the JVM, and then this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def find_jvm() -> Any:
    """Return the JVM of this process, which may have no active session; None if there is no JVM."""
    from pyspark import SparkContext

    if SparkContext._jvm is None and started_by_spark_submit():
        SparkContext._ensure_initialized()
    return SparkContext._jvm


def access_class(jvm: Any, name: str) -> Any:
    """Return the class of this full name.

    This costs one request. `jvm.java.lang.String` costs three, and for each the JVM looks for a class in all jars: up
    to a millisecond.
    """
    return getattr(jvm, name)


def finds(name: str) -> bool | None:
    """Return whether the JVM of this process finds this class; None if there is no JVM yet."""
    from py4j.java_gateway import JavaClass

    jvm = find_jvm()
    return None if jvm is None else isinstance(access_class(jvm, name), JavaClass)


def find_table_format_version(name: str) -> str | None:
    """Return the version of Delta Lake or Iceberg in the JVM of this process, None if it has none."""
    jvm = find_jvm()
    if jvm is None:
        return None
    if name == "Iceberg":
        build = "org.apache.iceberg.IcebergBuild"
        return str(access_class(jvm, build).version()) if finds(build) else None
    if not finds("org.apache.spark.sql.delta.DeltaLog"):
        return None
    loader = access_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    package = access_class(jvm, "java.lang.Class").forName("io.delta.package$", True, loader)
    return str(package.getField("MODULE$").get(None).VERSION())


def read_running_conf(key: str) -> str | None:
    """Return a setting of this process's Spark context, an empty text if it is unset, None without a context."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return None
    return str(context.getConf().get(key, ""))
