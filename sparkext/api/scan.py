"""`scan_parquet`: a DataFrame of Parquet files that workers read themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparkext.errors import InvalidScanError
from sparkext.joins.calls import check_signature
from sparkext.joins.lineage import Lineage
from sparkext.scans.resolved_scan import ResolvedScan, resolve_scan
from sparkext.spark.session_settings import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkext.scans.resolved_scan import Paths


@check_signature("scan_parquet(spark, path, columns=[…], filters=[…])", InvalidScanError)
def scan_parquet(
    spark: SparkSession,
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    filters: Sequence[Any] | None = None,
) -> DataFrame:
    """Return the rows of Parquet files as a DataFrame. Workers read the files themselves, without Spark's reader.

        lines = scan_parquet(spark, "/data/lineitem", columns=["l_orderkey", "l_tax"], filters=[("l_tax", ">", 0)])
        out = lines.transform(pipelined_join(scan_parquet(spark, "/data/orders"), on=[("l_orderkey", "o_orderkey")]))

    Transforms of this package that are applied to it directly run in the same pipeline, over the files: no row of the
    probe side passes through the JVM. As the build side of a transform, the table is read and indexed once per node, by
    the node's workers, and cached there for later queries. In all other uses it behaves like any DataFrame. Rows, names
    and types are the same as of `spark.read.parquet(path)`. The call refuses columns and session settings with which
    workers and Spark would read different rows; an action fails at a file that they would read differently.

    With the session extension the result is `spark.read.parquet` with a filter and a selection, and Catalyst plans the
    scan.

    Parameters
    ----------
    path:
        A file, a folder or a pattern as Spark accepts them, or a list of these: local to every node (`file:`), or in a
        bucket that Spark reads through S3A (`s3a:`). Partition folders become columns. The call lists the files.
    columns:
        Names of the columns of the result, in its order; all columns if left out. Other columns are not read.
    filters:
        A list of `(name, operator, value)` tuples, all of which must hold, or a list of such lists, at least one of
        which must hold. Operators are `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in` and `not in` with a list, and
        `is null` and `is not null` without a value; all rows if left out. Values have the column's type: int, Decimal,
        str, bool (only for equality), `date`, or `datetime` with a time zone (without one for timestamps without a time
        zone). Integers can also be compared with a float or Decimal under 2**53. Columns of floats and of binaries can
        only be tested for null. As in SQL, a comparison with null never holds. Row groups that statistics rule out are
        not read.

    Raises
    ------
    InvalidScanError
        Lists the problems of the call.
    pyspark.errors.AnalysisException
        Spark finds no files, or no schema in them.
    EnvironmentProblemError
        Without the extension: the workers' Python lacks a package or does not start, or `spark.executor.pyspark.memory`
        is too low.
    """
    resolved = resolve_scan(spark, path, columns, filters)
    if isinstance(resolved, ResolvedScan):
        return Lineage.scanning(spark, resolved.scan, resolved.names).frame(settings_of(spark))
    return resolved
