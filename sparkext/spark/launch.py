"""The settings with which Spark's JVM was or will be started."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from pathlib import Path
from typing import Any

from sparkext.spark import jvm


def read_builder_options(builder: Any) -> dict[str, str]:
    """Return the options of a session builder."""
    return {key: str(value) for key, value in builder._options.items()}


def read_default_conf() -> dict[str, str]:
    """Return the settings that a builder's options would override.

    If a JVM runs, these are the settings with which it was started, for example by `spark-submit`. Otherwise PySpark
    will start a JVM with the settings of `spark-defaults.conf` and of the command line in `PYSPARK_SUBMIT_ARGS`.
    """
    if jvm.find_jvm() is not None:
        from pyspark import SparkConf

        return dict(SparkConf().getAll())
    return {**_read_defaults_files(), **parse_submit_arguments()}


def parse_submit_arguments() -> dict[str, str]:
    """Return the settings of `PYSPARK_SUBMIT_ARGS`, the command line with which PySpark will start the JVM."""
    arguments = _parse_submit_line()
    named = {
        "spark.jars": arguments.jars,
        "spark.master": arguments.master,
        "spark.driver.extraClassPath": arguments.driver_class_path,
    }
    settings = dict(pair.split("=", 1) for pair in arguments.conf if "=" in pair)
    return settings | {key: value for key, value in named.items() if value is not None}


def _parse_submit_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    parser.add_argument("--jars")
    parser.add_argument("--master")
    parser.add_argument("--driver-class-path")
    parser.add_argument("--properties-file")
    parser.add_argument("--load-spark-defaults", action="store_true")
    arguments, _ = parser.parse_known_args(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    return arguments


def _read_defaults_files() -> dict[str, str]:
    """Return the settings of `spark-defaults.conf`, and of the properties file that the command line names."""
    arguments = _parse_submit_line()
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    settings: dict[str, str] = {}
    if folder is not None and (arguments.properties_file is None or arguments.load_spark_defaults):
        settings |= _read_properties(Path(folder) / "spark-defaults.conf")
    if arguments.properties_file is not None:
        settings |= _read_properties(Path(arguments.properties_file))
    return settings


def _read_properties(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    pairs = re.findall(r"^[ \t]*([^#\s=:]+)[ \t]*[=: \t][ \t]*(.*?)[ \t]*$", path.read_text(), re.MULTILINE)
    return dict(pairs)


def split_list(setting: str | None) -> list[str]:
    """Return the items of a comma-separated setting, such as `spark.jars`."""
    return [item.strip() for item in (setting or "").split(",") if item.strip()]
