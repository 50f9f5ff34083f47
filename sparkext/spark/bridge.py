"""Everything that touches PySpark beyond its public API, or differs between its versions and flavours."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa

from sparkext.config import parse_bytes
from sparkext.rows.compression import decompressed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


EXTENSION = "io.sparkext.SparkExtensions"
"""What `spark.sql.extensions` names to load the session extension."""

_SECRETS = ("access.key", "secret.key", "session.token")


def is_dataframe(value: object) -> bool:
    """Return whether `value` is a Spark DataFrame, classic or Connect."""
    from pyspark.sql import DataFrame

    if isinstance(value, DataFrame):
        return True
    return type(value).__module__ == "pyspark.sql.connect.dataframe" and type(value).__name__ == "DataFrame"


def is_connect(session: SparkSession) -> bool:
    """Return whether the session talks to a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def is_local(session: SparkSession) -> bool:
    """Return whether the tasks of a classic session run in the driver's process."""
    return bool(session.sparkContext._jsc.isLocal())


def is_cached(frame: DataFrame) -> bool:
    """Return whether Spark keeps, or will keep, the rows of this DataFrame."""
    return bool(frame.is_cached)


def pickled(value: object) -> bytes:
    """Pickle what `pickle` reads where PySpark is installed, functions by their code."""
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(value))


def builder_options(builder: Any) -> dict[str, str]:
    """Return what a session builder has been told so far."""
    return {key: str(value) for key, value in builder._options.items()}


def default_conf() -> dict[str, str]:
    """Return the settings that a builder's settings would replace: those the JVM was started with, if there is one.

    `spark-submit` starts it with its options. Where PySpark will start it, these are those of `spark-defaults.conf`
    and of the command line in `PYSPARK_SUBMIT_ARGS`.
    """
    if _jvm() is not None:
        from pyspark import SparkConf

        return dict(SparkConf().getAll())
    return {**_defaults_files(), **submit_arguments()}


def submit_arguments() -> dict[str, str]:
    """Return the settings of the command line that PySpark will start the JVM with: `PYSPARK_SUBMIT_ARGS`."""
    given = _submit_line()
    named = {
        "spark.jars": given.jars,
        "spark.master": given.master,
        "spark.driver.extraClassPath": given.driver_class_path,
    }
    settings = dict(pair.split("=", 1) for pair in given.conf if "=" in pair)
    return settings | {key: value for key, value in named.items() if value is not None}


def _submit_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    parser.add_argument("--jars")
    parser.add_argument("--master")
    parser.add_argument("--driver-class-path")
    parser.add_argument("--properties-file")
    parser.add_argument("--load-spark-defaults", action="store_true")
    given, _ = parser.parse_known_args(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    return given


def _defaults_files() -> dict[str, str]:
    """Settings of `spark-defaults.conf`, and of the file that the command line names."""
    given = _submit_line()
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    settings: dict[str, str] = {}
    if folder is not None and (given.properties_file is None or given.load_spark_defaults):
        settings |= _properties(Path(folder) / "spark-defaults.conf")
    if given.properties_file is not None:
        settings |= _properties(Path(given.properties_file))
    return settings


def _properties(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    pairs = re.findall(r"^[ \t]*([^#\s=:]+)[ \t]*[=: \t][ \t]*(.*?)[ \t]*$", path.read_text(), re.MULTILINE)
    return dict(pairs)


def listed(setting: str | None) -> list[str]:
    """Return the items of a setting that is a list, as `spark.jars` is."""
    return [item.strip() for item in (setting or "").split(",") if item.strip()]


def running_conf(key: str) -> str | None:
    """Return a setting of the Spark that this process runs, or None if it runs none. Unset is an empty text."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return None
    return str(context.getConf().get(key, ""))


def jvm_finds(name: str) -> bool | None:
    """Return whether this process's JVM finds this class; None if it has no JVM yet."""
    from py4j.java_gateway import JavaClass

    found = _jvm()
    if found is None:
        return None
    for part in name.split("."):
        found = getattr(found, part)
    return isinstance(found, JavaClass)


def started_by_spark_submit() -> bool:
    """Return whether `spark-submit` has started this process, and before it the JVM, with its options."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _jvm() -> Any:
    """This process's JVM: that of a session, before it or after it; or None."""
    from pyspark import SparkContext

    if SparkContext._jvm is None and started_by_spark_submit():
        SparkContext._ensure_initialized()
    return SparkContext._jvm


def has_extension(session: Any) -> bool:
    """Return whether a classic session has loaded the extension: it is asked for, and its classes are there.

    Spark warns where they are not, and goes on.
    """
    if is_connect(session):
        return False
    asked_for = str(session.sparkContext.getConf().get("spark.sql.extensions", ""))
    return EXTENSION in listed(asked_for) and jvm_finds(EXTENSION) is True


def plans_joins(session: Any) -> bool:
    """Return whether hinted joins of this session are planned by the extension: it is loaded and not switched off."""
    return has_extension(session) and session.conf.get("spark.sparkext.mode", "auto").lower() != "off"


def planned_runs(frame: Any) -> list[tuple[list[str], list[str], str | None]]:
    """Return per pipeline in the plan of `frame`: labels of its joins, the reports of its last run's tasks, and why it
    fell back to Spark's own joins, if it did.
    """
    runs = _plans(frame).of(frame._jdf.queryExecution())
    return [(list(run.joins()), list(run.reports()), run.fellBack()) for run in runs]


def declined_joins(frame: Any) -> list[str]:
    """Return the reasons of all joins in the plan of `frame` that are Spark's own, or were when they last ran."""
    return list(_plans(frame).declined(frame._jdf.queryExecution()))


def _plans(frame: Any) -> Any:
    return frame.sparkSession.sparkContext._jvm.org.apache.spark.sql.sparkext.PipelineRuns


def quoted(name: str) -> str:
    """Quote a column name, so that dots and backticks in it mean themselves."""
    return "`" + name.replace("`", "``") + "`"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark exchanges rows of `schema` with Python.

    Raises what PySpark raises for a type that does not travel as Arrow.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before 4.2 the time zone is always UTC, and 3.5 takes the schema alone.
    options: dict[str, Any] = {"error_on_duplicated_field_names_in_struct": True, "timezone": "UTC"}
    known = signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **{name: value for name, value in options.items() if name in known})


def not_arrow(schema: StructType) -> list[tuple[str, str]]:
    """Return (column, type) of every column of `schema` that Spark cannot exchange with Python as Arrow."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    problems = []
    for field in schema.fields:
        try:
            arrow_schema(StructType([field]))
        except (PySparkException, NotImplementedError, ValueError):
            problems.append((field.name, field.dataType.simpleString()))
    return problems


def takes_tables() -> bool:
    """Return whether PySpark makes DataFrames of pyarrow Tables: from 4.0 on."""
    from pyspark.sql.pandas import types

    return hasattr(types, "_check_arrow_table_timestamps_localize")


def local_table(session: SparkSession, data: Any) -> tuple[StructType, pa.Table]:
    """Return the Spark schema that `session.createDataFrame(data)` would give, and the rows in Spark's Arrow types.

    `data` is a pandas DataFrame or a pyarrow Table. The rows do not travel through the JVM.
    """
    from pyspark.sql.pandas.types import _check_arrow_table_timestamps_localize, from_arrow_schema

    table = data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    table = table.cast(pa.schema([_plain_field(field) for field in table.schema])).replace_schema_metadata(None)
    prefer_ntz = session.conf.get("spark.sql.timestampType", "TIMESTAMP_LTZ") == "TIMESTAMP_NTZ"
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=prefer_ntz)
    zone = str(session.conf.get("spark.sql.session.timeZone"))
    localized = _check_arrow_table_timestamps_localize(table, schema, True, zone)
    return schema, localized.cast(arrow_schema(schema))


def unconvertible_columns(session: SparkSession, data: Any) -> list[str]:
    """Return the names of the columns that alone keep `local_table` from converting `data`."""
    names = data.column_names if isinstance(data, pa.Table) else [str(name) for name in data.columns]
    broken = []
    for position, name in enumerate(names):
        try:
            local_table(session, data.select([position]) if isinstance(data, pa.Table) else data.iloc[:, [position]])
        except Exception:  # whatever it was: the caller tells it
            broken.append(name)
    return broken


def _plain_field(field: pa.Field) -> pa.Field:
    """Replace encodings that Spark has no name for (dictionaries, string views) by the type they encode."""
    arrow_type = field.type
    if pa.types.is_decimal(arrow_type) and arrow_type.scale < 0:
        raise pa.ArrowTypeError(f"{arrow_type}: Spark has no decimals of negative scale")
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if pa.types.is_string_view(arrow_type):
        arrow_type = pa.string()
    elif pa.types.is_binary_view(arrow_type):
        arrow_type = pa.binary()
    elif pa.types.is_date64(arrow_type):
        arrow_type = pa.date32()
    return pa.field(field.name, arrow_type, field.nullable)


def pick(frame: DataFrame, positions: tuple[int, ...]) -> DataFrame:
    """Return the columns at these positions; for none, one constant column, as rows without columns get lost."""
    from pyspark.sql import functions as F

    names = frame.columns
    if not positions:
        return frame.select(F.lit(0).alias("c0"))
    if positions == tuple(range(len(names))):
        return frame
    return frame.select(*(quoted(names[position]) for position in positions))


def map_in_arrow(frame: DataFrame, task: Any, schema: StructType) -> DataFrame:
    """Run `task` over the batches of `frame`, whose columns it sees by position only.

    PySpark looks up the columns of the input by name, which fails for names with dots or backticks, and loses the rows
    of an input without columns: the input is renamed, and given a column if it has none.
    """
    width = len(frame.columns)
    plain = frame.toDF(*(f"c{number}" for number in range(width))) if width else pick(frame, ())
    return plain.mapInArrow(task, schema)


def tasks_per_executor(session: SparkSession) -> int | None:
    """Return how many tasks share an executor's memory, or None if the configuration does not say."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)[,\]].*)?", session.conf.get("spark.master", None) or "")
    if local is not None:
        cores = local[1] or "1"
        return (os.cpu_count() or 1) if cores == "*" else int(cores)
    configured = session.conf.get("spark.executor.cores", None)
    per_task = session.conf.get("spark.task.cpus", None) or "1"
    return None if configured is None else max(1, int(configured) // int(per_task))


def parallelism(session: SparkSession) -> int:
    """Return into how many tasks Spark parts what nothing else decides the parts of."""
    from pyspark.sql import functions as F

    for key in ("spark.sql.files.minPartitionNum", "spark.sql.leafNodeDefaultParallelism"):
        configured = session.conf.get(key, None)
        if configured:
            return int(configured)
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    return session.range(1 << 16).select(F.spark_partition_id()).distinct().count()


def byte_setting(session: SparkSession, key: str) -> int:
    """Return a setting of Spark's that is a number of bytes."""
    return parse_bytes(str(session.conf.get(key)))


def draws_jobs(session: SparkSession) -> bool:
    """Return whether Spark draws bars of its running jobs on this process's terminal."""
    return not is_connect(session) and session.conf.get("spark.ui.showConsoleProgress", "false") == "true"


def encrypts_files(session: SparkSession) -> bool:
    """Return whether Spark encrypts what it writes to local disks."""
    return (session.conf.get("spark.io.encryption.enabled", None) or "false").lower() == "true"


def hadoop_settings(session: SparkSession) -> Callable[[str], str | None]:
    """Return what gives values of Hadoop's settings; through Connect those that came with Spark's own."""
    if is_connect(session):
        return lambda key: session.conf.get(f"spark.hadoop.{key}", None) or session.conf.get(key, None)
    hadoop = cast(Any, session)._jsparkSession.sessionState().newHadoopConf()
    text = cast(Any, session.sparkContext)._jvm.java.lang.String.valueOf

    def setting(key: str) -> str | None:
        if not key.endswith(_SECRETS):
            return cast("str | None", hadoop.getTrimmed(key))
        found = hadoop.getPassword(key)  # also from a store of passwords, if there is one
        return None if found is None else str(text(found)).strip()

    return setting


def collect_as_arrow(frame: DataFrame, order: list[int]) -> Generator[pa.RecordBatch]:
    """Run `frame` and yield its rows as they reach the driver, in Spark's Arrow types.

    Who does not read all of it has to close it, which cancels the job: until then Spark's scheduler waits for its rows
    to be taken, and no other job goes on. Afterwards `order` has the numbers of the batches in the order of Spark's
    rows; none if they came in that order.
    """
    if is_connect(frame.sparkSession):
        yield from _collect_connect(frame)
    else:
        yield from _collect_classic(frame, order)


def _collect_classic(frame: Any, order: list[int]) -> Generator[pa.RecordBatch]:
    """Stream what `DataFrame.toArrow` collects, batch by batch, so that a limit can stop it."""
    from pyspark.serializers import read_int
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.traceback_utils import SCCallSiteSync

    tag = f"sparkext-{uuid.uuid4().hex}"
    with SCCallSiteSync(frame._sc), _tagged(frame._sc, tag):
        port, secret, server = frame._jdf.collectAsArrowToPython()
    opened: Any = of_either("pyspark.util", "pyspark.rdd", "_create_local_socket")((port, secret))
    # 4.1 keeps the socket to itself: it closes with the stream.
    ends = opened if isinstance(opened, tuple) else (opened,)
    try:
        try:
            yield from decompressed(ArrowStreamSerializer().load_stream(cast(IO[bytes], ends[0])))
            order.extend(read_int(ends[0]) for _ in range(read_int(ends[0])))  # -1 if the job failed
            while ends[0].read(1 << 16):
                pass  # its writer must not find the end closed
        except (pa.ArrowException, EOFError):
            # The stream broke off because the job failed: Spark's own error says why. Without one, this one stands.
            _finish(server)
            raise
        except GeneratorExit:
            frame._sc.cancelJobsWithTag(tag)
            raise
    finally:
        for end in ends:
            end.close()
    _finish(server)


@contextmanager
def _tagged(context: Any, tag: str) -> Iterator[None]:
    """Give jobs that are begun within a tag by which they can be cancelled."""
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def of_either(module: str, before_4: str, name: str) -> Any:
    """Return what another module had before Spark 4."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return getattr(importlib.import_module(before_4), name)


def _finish(server: Any) -> None:
    """Wait for the job's end; raise its error as PySpark would."""
    from pyspark.errors.exceptions.captured import unwrap_spark_exception

    with unwrap_spark_exception():
        server.getResult()


def _collect_connect(frame: Any) -> Generator[pa.RecordBatch]:
    client = frame._session.client
    plan = frame._plan
    for piece in decompressed(client.to_table_as_iterator(plan.to_proto(client), plan.observations)):
        if isinstance(piece, pa.Table):
            yield from piece.to_batches()
