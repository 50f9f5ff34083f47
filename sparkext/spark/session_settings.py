"""The type of a session, and its settings."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from sparkext.config import PREFIX, Settings, find_configuration_problems, parse_bytes, read_settings
from sparkext.parquet.s3_settings import derive_bucket
from sparkext.spark.jvm import access_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_BETWEEN = "\0"
_SECRETS = ("access.key", "secret.key", "session.token")


def is_connect(session: SparkSession) -> bool:
    """Return whether this is a session of a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def is_local_master(session: SparkSession) -> bool:
    """Return whether the tasks of a classic session run in the driver's process."""
    return bool(session.sparkContext._jsc.isLocal())


def read_configured_options(session: SparkSession) -> dict[str, str]:
    """Return the `spark.sparkext.*` keys that are set in a session, as texts. Calls the JVM or the server once."""
    if is_connect(session):
        conf: Mapping[str, str] = session.conf.getAll
    else:
        texts = cast(Any, session)._jsparkSession.conf().getAll().mkString(_BETWEEN)
        conf = dict(text.split(" -> ", 1) for text in texts.split(_BETWEEN))
    return {name: text for name, text in conf.items() if name.startswith(PREFIX)}


def read_session_options(session: SparkSession) -> dict[str, str]:
    """Return the same as `read_configured_options`, and log each problem of these keys once."""
    options = read_configured_options(session)
    for problem in find_configuration_problems(options):
        _warn_once(problem)
    return options


def settings_of(session: SparkSession) -> Settings:
    """Return the settings of a session, and log each problem of its keys once."""
    return read_settings(read_session_options(session).get, {})


@lru_cache(maxsize=1000)
def _warn_once(problem: str) -> None:
    logging.getLogger("sparkext").warning("%s", problem)


def count_tasks_per_executor(session: SparkSession) -> int | None:
    """Return how many tasks share an executor's memory, or None if the configuration does not determine it."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)[,\]].*)?", session.conf.get("spark.master", None) or "")
    if local is not None:
        cores = local[1] or "1"
        return (os.cpu_count() or 1) if cores == "*" else int(cores)
    configured = session.conf.get("spark.executor.cores", None)
    per_task = session.conf.get("spark.task.cpus", None) or "1"
    return None if configured is None else max(1, int(configured) // int(per_task))


def read_parallelism(session: SparkSession) -> int:
    """Return Spark's default number of tasks for a source."""
    from pyspark.sql import functions as F

    for key in ("spark.sql.files.minPartitionNum", "spark.sql.leafNodeDefaultParallelism"):
        configured = session.conf.get(key, None)
        if configured:
            return int(configured)
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    return session.range(1 << 16).select(F.spark_partition_id()).distinct().count()


def limits_batches(session: SparkSession) -> bool:
    """Return whether Spark limits the bytes of the batches that it sends to Python: from 4.1 on."""
    major, minor = session.version.split(".")[:2]
    return (int(major), int(minor)) >= (4, 1)


def read_byte_setting(session: SparkSession, key: str) -> int:
    """Return a byte size from Spark's configuration."""
    return parse_bytes(str(session.conf.get(key)))


def draws_jobs(session: SparkSession) -> bool:
    """Return whether Spark draws progress bars of running jobs on the terminal of this process."""
    return not is_connect(session) and session.conf.get("spark.ui.showConsoleProgress", "false") == "true"


def is_case_sensitive(session: SparkSession) -> bool:
    """Return whether column names are case-sensitive."""
    return session.conf.get("spark.sql.caseSensitive", "false") == "true"


def encrypts_files(session: SparkSession) -> bool:
    """Return whether Spark encrypts its files on local disks."""
    return (session.conf.get("spark.io.encryption.enabled", None) or "false").lower() == "true"


def access_hadoop_settings(session: SparkSession) -> Callable[[str], str | None]:
    """Return a function from a key to the Hadoop setting; through Connect, only keys in Spark's configuration."""
    if is_connect(session):
        return lambda key: session.conf.get(f"spark.hadoop.{key}", None) or session.conf.get(key, None)
    hadoop = cast(Any, session)._jsparkSession.sessionState().newHadoopConf()
    text = access_class(session.sparkContext._jvm, "java.lang.String").valueOf

    def setting(key: str) -> str | None:
        if not key.endswith(_SECRETS):
            return cast("str | None", hadoop.getTrimmed(key))
        password = hadoop.getPassword(key)  # also reads Hadoop's credential providers, if there are any
        return None if password is None else str(text(password)).strip()

    return setting


def read_s3a_settings(session: SparkSession, bucket: str) -> dict[str, str]:
    """Return the settings of Spark's S3A connector that workers need for a bucket, in a classic session."""
    setting, settings = access_hadoop_settings(session), dict[str, str | None]()
    derive_bucket(bucket, lambda key: settings.setdefault(key, setting(key)))
    return {key: value for key, value in settings.items() if value}
