"""Resolves the arguments of `scan_parquet`: paths, columns, filters, and the files to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from sparkext.errors import InvalidScanError
from sparkext.parquet.file_stores import Bucket, is_local_path, split_remote_path
from sparkext.parquet.rules import READ_TYPES, Calendars
from sparkext.parquet.s3_settings import derive_bucket
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.pipeline.scan import DataFile, plan_splits
from sparkext.rows.types import spark_key_type
from sparkext.scans.scan_filter import as_column, read_filters
from sparkext.scans.scanned_table import ProbeScan, ScannedTable
from sparkext.spark.extension import has_extension
from sparkext.spark.frames import quote_name
from sparkext.spark.session_settings import (
    access_hadoop_settings,
    is_case_sensitive,
    is_connect,
    read_byte_setting,
    read_parallelism,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

    Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

_NOT_COMPARED = {"float32", "float64", "binary"}
_NOT_AS_TEXT = ("float32", "float64", "binary", "timestamp_ntz")
_DEFAULT = "EXISTS_DEFAULT"
_LISTING = ("path", "modificationTime", "length", "content")
_LISTING_NAMES = tuple(name.lower() for name in _LISTING)
_LOCAL = "file:"
_S3A = "s3a"
_CONNECTOR = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_REBASE_MODES = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")
_REFUSED = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.int96TimestampConversion",
)
"""Settings that may not be true."""


@dataclass(frozen=True)
class ResolvedScan:
    """A scan by workers, and the names of the columns that it emits."""

    scan: ProbeScan
    names: Sequence[str]


def resolve_scan(
    spark: SparkSession, path: Paths, columns: Sequence[str] | None, filters: Sequence[Any] | None
) -> ResolvedScan | DataFrame:
    """Check the arguments of `scan_parquet` and list the files. With the extension, return Spark's own DataFrame.

    Raises
    ------
    InvalidScanError
        Lists the problems of the call.
    """
    problems: list[str] = []
    paths = _parse_paths(path, problems)
    if problems:
        raise InvalidScanError(problems)
    frame = spark.read.parquet(*paths)
    fields = frame.schema.fields
    case_sensitive = is_case_sensitive(spark)
    find = _create_finder(frame.columns, case_sensitive)
    names = _pick_columns(columns, frame.columns, find, problems)
    tests = read_filters(filters, {field.name: _find_compared_type(field) for field in fields}, find, problems)
    if problems:
        raise InvalidScanError(problems)
    if has_extension(spark):
        condition = as_column(tests)
        filtered = frame if condition is None else frame.where(condition)
        return filtered.select(*map(quote_name, names))
    tested = [test.name for alternative in tests for test in alternative]
    read = list(dict.fromkeys(str(find(name)) for name in (*names, *tested)))
    by_name = {field.name: field for field in fields}
    problems += _find_unreadable(spark, [by_name[name] for name in read])
    partitions, files = _list_files(spark, paths, frame, by_name, problems)
    buckets = _find_buckets(spark, files, problems)
    if problems:
        raise InvalidScanError(problems)
    table = ScannedTable(
        tuple(by_name[name] for name in read),
        tuple(partitions.index(name) if name in partitions else None for name in read),
        tests,
        tuple(files),
        buckets,
        case_sensitive,
        Calendars(*(str(spark.conf.get(key)).upper() == "CORRECTED" for key in _REBASE_MODES)),
    )
    parts = plan_splits(
        files,
        read_parallelism(spark),
        read_byte_setting(spark, "spark.sql.files.maxPartitionBytes"),
        read_byte_setting(spark, "spark.sql.files.openCostInBytes"),
    )
    scan = ProbeScan(table, tuple(read.index(str(find(name))) for name in names), tuple(parts))
    return ResolvedScan(scan, names)


def _parse_paths(path: Any, problems: list[str]) -> list[str]:
    listed = [path] if isinstance(path, (str, PathLike)) else path
    if isinstance(listed, (list, tuple)) and listed and all(isinstance(item, (str, PathLike)) for item in listed):
        return [fspath(item) for item in listed]
    problems.append(f"path={path!r}: expected a path, or a list of one or more paths")
    return []


def _create_finder(names: Sequence[str], case_sensitive: bool) -> Callable[[str], str | None]:
    """Return a function that maps a name to the column that it refers to, or to None."""
    names_by_key = {name if case_sensitive else name.lower(): name for name in names}
    return lambda name: names_by_key.get(name if case_sensitive else name.lower())


def _pick_columns(
    columns: Any, names: Sequence[str], find: Callable[[str], str | None], problems: list[str]
) -> list[str]:
    """Return the names of the columns to emit, as the caller spells them."""
    if columns is None:
        return list(names)
    if not isinstance(columns, (list, tuple)) or not columns:
        problems.append(f"columns={columns!r}: expected a list of one or more names")
        return []
    missing = [name for name in columns if not isinstance(name, str) or find(name) is None]
    problems.extend(f"columns names {name!r}, which does not exist. Available: {', '.join(names)}" for name in missing)
    matches = [find(name) for name in columns if isinstance(name, str)]
    duplicates = dict.fromkeys(name for name in matches if name is not None and matches.count(name) > 1)
    problems.extend(f"columns names {name!r} more than once" for name in duplicates)
    return list(columns)


def _find_compared_type(field: StructField) -> KeyType | None:
    key_type = spark_key_type(field)
    return None if key_type is None or key_type.name not in READ_TYPES - _NOT_COMPARED else key_type


def _find_unreadable(spark: SparkSession, fields: Sequence[StructField]) -> list[str]:
    """Return the problems of session settings and columns that workers do not support. Opens no file."""
    remedy = "read them with spark.read.parquet"
    problems = [
        f"workers do not read files while {key} is true: unset it, or {remedy}"
        for key in _REFUSED
        if (spark.conf.get(key, None) or "").lower() == "true"
    ]
    if spark.conf.get("parquet.crypto.factory.class", ""):
        problems.append(f"parquet.crypto.factory.class is set, so files may be encrypted: {remedy}")
    for field in fields:
        key_type = spark_key_type(field)
        if key_type is None or key_type.name not in READ_TYPES:
            problems.append(f"workers do not read column {field.name!r} of type {field.dataType.simpleString()}")
        elif _DEFAULT in (field.metadata or {}):
            problems.append(
                f"column {field.name!r} has a default value for files without it, which workers do not fill in"
            )
    return problems


def _list_files(
    spark: SparkSession,
    paths: Sequence[str],
    frame: DataFrame,
    fields: Mapping[str, StructField],
    problems: list[str],
) -> tuple[list[str], list[DataFile]]:
    """List the files as Spark does. Return the names of the partition columns, and the files sorted by path.

    Spark's `binaryFile` reader returns paths and lengths in all types of sessions, without reading the files.
    """
    hidden = [name for name in fields if name.lower() in _LISTING_NAMES and _is_partition(name, frame)]
    if hidden:
        problems.append(f"partition column {hidden[0]!r}: this name is reserved by Spark's list of files")
        return [], []
    listing = spark.read.format("binaryFile").load(list(paths))
    partitions = [name for name in listing.columns if name not in _LISTING]
    for name in partitions:
        key_type = spark_key_type(fields[name])
        if key_type is None or key_type.name in _NOT_AS_TEXT:
            problems.append(
                f"workers do not read partition column {name!r} of type {fields[name].dataType.simpleString()}"
            )
    if problems:
        return partitions, []
    rows = listing.select("path", "length", *(_as_text(fields[name]) for name in partitions)).collect()
    # Spark ignores empty files.
    files = [DataFile(row[0].removeprefix(_LOCAL), row[1], tuple(row[2:])) for row in rows if row[1]]
    return partitions, sorted(files, key=lambda file: file.path)


def _find_buckets(spark: SparkSession, files: Sequence[DataFile], problems: list[str]) -> tuple[Bucket, ...]:
    """Return the buckets of the files that are not local."""
    hadoop = access_hadoop_settings(spark)
    buckets: list[Bucket] = []
    for scheme, name in dict.fromkeys(split_remote_path(file.path) for file in files if not is_local_path(file.path)):
        bucket = derive_bucket(name, hadoop) if scheme == _S3A or hadoop(f"fs.{scheme}.impl") == _CONNECTOR else scheme
        if isinstance(bucket, str):
            problems.append(f"workers do not read these files: {bucket}. Use spark.read.parquet")
        elif is_connect(spark) and bucket.endpoint is None and bucket.region is None:
            problems.append(
                f"bucket {name}: Spark Connect does not show the server's endpoint for it. Set"
                " spark.hadoop.fs.s3a.endpoint or spark.hadoop.fs.s3a.endpoint.region on the server, or use"
                " spark.read.parquet"
            )
        else:
            buckets.append(bucket)
    return tuple(buckets)


def _is_partition(name: str, frame: DataFrame) -> bool:
    """Return whether some file is in a partition folder `name=…`. Called for names in `_LISTING`."""
    begin = f"{name}=".lower()
    return any(part.lower().startswith(begin) for file in frame.inputFiles() for part in file.split("/")[:-1])


def _as_text(field: StructField) -> Column:
    """Return a partition column as text, spelled like the literals of predicates: days for dates, µs for timestamps."""
    from pyspark.sql import functions as F

    column = F.col(quote_name(field.name)).cast(field.dataType)
    units = {"date": F.unix_date, "timestamp": F.unix_micros}.get(field.dataType.typeName())
    return (column if units is None else units(column)).cast("string")
