"""The build side on the driver: the user's table with a Spark schema and a function that collects it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa

from sparkext.build_sides.file import check_build_size, collect_batches, write_build_file
from sparkext.build_sides.sources import BuildSource
from sparkext.config import Settings
from sparkext.engine.derived_rows import DerivedRows
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.joins.lineage import Lineage, find_lineage
from sparkext.joins.publishing import publish_file
from sparkext.memory import address_space
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.pipeline.projection import Projection
from sparkext.reports.progress import CountingStream, count_passing_rows, is_on_terminal, progress
from sparkext.spark.arrow import arrow_schema, convert_local_data, find_unconvertible_columns, takes_tables
from sparkext.spark.collecting import collect_as_arrow
from sparkext.spark.frames import is_cached, is_dataframe, pick
from sparkext.spark.session_settings import count_tasks_per_executor, draws_jobs, encrypts_files, is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class DriverBuildSide:
    """A build side on the driver.

    `schema` is Spark's. `collect(positions, settings)` returns the columns at these positions in Spark's Arrow types;
    without positions it returns one constant column, because the number of rows still matters. It raises
    `BuildSideTooLargeError`. `frame` returns the build side as a Spark DataFrame, for Catalyst. `made_by` is the
    pipeline over files from which workers can materialise the build side themselves, or None.
    """

    schema: StructType
    collect: Callable[[tuple[int, ...], Settings], pa.Table]
    frame: Callable[[], DataFrame]
    made_by: Lineage | None = None

    def table(self, session: SparkSession, positions: tuple[int, ...], settings: Settings) -> pa.Table:
        """Collect these columns, after checking that workers have enough address space for a join.

        Raises
        ------
        EnvironmentProblemError
            Workers do not have enough address space.
        """
        address_space.check_setting(lambda key: session.conf.get(key, None))
        return self.collect(positions, settings)

    def source(self, session: SparkSession, positions: tuple[int, ...], settings: Settings) -> BuildSource:
        """Return the source of these columns for workers: files, a pipeline over files, or a published table."""
        from pyspark.sql.types import StructType

        if self.made_by is None or self.made_by.scan is None or encrypts_files(session):
            return publish(session, self.table(session, positions, settings), settings)
        files, file_columns = self.made_by.scan.table, self.made_by.scan.columns
        threads = count_tasks_per_executor(session) or 1
        max_bytes = settings.build_side_max_bytes
        if not self.made_by.spec.joins:
            columns = [file_columns[position] for position in positions or (0,)]
            scan = files.scan(columns, settings.morsel_max_rows)
            return ScannedFiles(scan, files.splits, max_bytes, threads)
        outputs = [self.made_by.outputs[position] for position in positions or (0,)]
        schema = arrow_schema(StructType([output.field for output in outputs]))
        return DerivedRows(
            replace(self.made_by.spec, outputs=tuple(output.ref for output in outputs)),
            files.scan(file_columns, settings.morsel_max_rows),
            self.made_by.scan.parts,
            tuple(source for source in self.made_by.sources if source is not None),  # over files, no source is None
            schema,
            Projection(None, tuple(Expression("column", None, column=number) for number in range(len(outputs)))),
            schema,
            settings,
            max_bytes,
            threads,
        )


def publish(session: SparkSession, table: pa.Table, settings: Settings) -> BuildSource:
    """Write a build file and publish it to every node."""
    with progress("publishing a build side", "B", table.nbytes, shown=settings.progress) as advance:
        return publish_file(
            session, lambda stream: write_build_file(table, cast(IO[bytes], CountingStream(stream, advance)))
        )


def convert_build_side(session: SparkSession, other: Any, problems: list[str]) -> DriverBuildSide | None:
    """Convert a Spark DataFrame, a pandas DataFrame or a pyarrow Table; return None after adding to `problems`."""
    if is_connect(session) and encrypts_files(session):
        problems.append(
            "spark.io.encryption.enabled is true, and through Spark Connect a build side is stored in unencrypted"
            " files: use a classic session or Spark's own join"
        )
        return None
    if is_dataframe(other):
        return _from_spark(session, other, problems)
    if _is_pandas(other) and _is_for_spark(session):
        return _convert_with_spark(session, other, problems)
    if isinstance(other, pa.Table) and not takes_tables():
        problems.append("other is a pyarrow Table, which PySpark accepts only from 4.0 on; pass a DataFrame")
        return None
    if isinstance(other, pa.Table) or _is_pandas(other):
        return _from_local(session, other, problems)
    problems.append(
        f"other is a {type(other).__module__}.{type(other).__name__}; expected a Spark DataFrame, a pandas DataFrame"
        " or a pyarrow Table"
    )
    return None


def _is_for_spark(session: SparkSession) -> bool:
    """Return whether Spark has to convert pandas DataFrames: always before 4.0, later only if dicts become maps."""
    as_maps = session.conf.get("spark.sql.execution.pandas.inferPandasDictAsMap", "false") == "true"
    return as_maps or not takes_tables()


def _convert_with_spark(session: SparkSession, other: Any, problems: list[str]) -> DriverBuildSide | None:
    try:
        frame = session.createDataFrame(other)
    except Exception as error:  # as in `_from_local`
        problems.append(f"other cannot be converted to Spark's types: {error}")
        return None
    return _from_spark(session, frame, problems)


def _from_spark(session: SparkSession, other: DataFrame, problems: list[str]) -> DriverBuildSide | None:
    if is_connect(session) != is_connect(other.sparkSession):
        problems.append(
            "one side belongs to a Spark Connect session and the other to a classic session: create both in one session"
        )
        return None
    if other.isStreaming:
        problems.append(
            "other is a streaming DataFrame: a build side must be finite. For two streams use"
            " sparkext.streams.stream_join"
        )
        return None

    def collect(positions: tuple[int, ...], settings: Settings) -> pa.Table:
        selection = pick(other, positions)
        arrow = arrow_schema(selection.schema)
        order: list[int] = []
        shown = settings.progress and not (is_on_terminal() and draws_jobs(session))
        with (
            progress("collecting a build side", "rows", shown=shown) as advance,
            closing(collect_as_arrow(selection, order)) as batches,
        ):
            return collect_batches(count_passing_rows(batches, advance), arrow, settings.build_side_max_bytes, order)

    lineage = find_lineage(other)
    # A join that emits unmatched build rows needs a shuffle, which workers cannot run.
    is_derivable = (
        lineage is not None and lineage.scan is not None and not lineage.spec.owner_columns and not is_cached(other)
    )
    return DriverBuildSide(other.schema, collect, lambda: other, lineage if is_derivable else None)


def _from_local(session: SparkSession, other: Any, problems: list[str]) -> DriverBuildSide | None:
    try:
        schema, table = convert_local_data(session, other)
    except Exception as error:  # for unsupported types, pandas, pyarrow and PySpark raise errors of different classes
        names = find_unconvertible_columns(session, other)
        location = f" (column {', '.join(map(repr, names))}: cast or drop it)" if names else ""
        problems.append(f"other cannot be converted to Spark's types{location}: {error}")
        return None

    rows = len(other)  # a table without columns loses its number of rows

    def collect(positions: tuple[int, ...], settings: Settings) -> pa.Table:
        selection = table.select(list(positions)) if positions else pa.table({"c0": pa.nulls(rows)})
        check_build_size(selection.num_rows, selection.nbytes, settings.build_side_max_bytes)
        return selection

    def frame() -> DataFrame:
        # createDataFrame loses the rows after an empty chunk, and fails for a column without any chunk.
        combined = pa.table([_combine_chunks(column) for column in table.columns], schema=table.schema)
        return session.createDataFrame(combined, schema)

    return DriverBuildSide(schema, collect, frame)


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return column.combine_chunks() if column.num_chunks != 1 else column


def _is_pandas(value: Any) -> bool:
    return type(value).__module__.startswith("pandas.") and type(value).__name__ == "DataFrame"
