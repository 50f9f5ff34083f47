"""Collects the rows of a DataFrame as a stream, batch by batch."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa

from sparkext.rows.compression import read_compressed
from sparkext.spark.internals import import_from_either
from sparkext.spark.session_settings import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collect_as_arrow(frame: DataFrame, order: list[int]) -> Generator[pa.RecordBatch]:
    """Run `frame` and yield its rows as they reach the driver, in Spark's Arrow types.

    A caller that does not read all batches has to close the generator, which cancels the job. Until the caller reads on
    or closes it, Spark's scheduler waits, and no other job continues. At the end, `order` lists the indexes of the
    batches in the order of Spark's rows; it stays empty if they were received in that order.
    """
    if is_connect(frame.sparkSession):
        yield from _collect_connect(frame)
    else:
        yield from _collect_classic(frame, order)


def _collect_classic(frame: Any, order: list[int]) -> Generator[pa.RecordBatch]:
    """Stream the batches of `DataFrame.toArrow`, so that a limit can stop the collection."""
    from pyspark.serializers import read_int
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.traceback_utils import SCCallSiteSync

    tag = f"sparkext-{uuid.uuid4().hex}"
    with SCCallSiteSync(frame._sc), _tag_jobs(frame._sc, tag):
        port, secret, server = frame._jdf.collectAsArrowToPython()
    opened: Any = import_from_either("pyspark.util", "pyspark.rdd", "_create_local_socket")((port, secret))
    # In 4.1, PySpark returns only the stream, and the socket is closed with it.
    ends = opened if isinstance(opened, tuple) else (opened,)
    try:
        try:
            yield from read_compressed(ArrowStreamSerializer().load_stream(cast(IO[bytes], ends[0])))
            order.extend(read_int(ends[0]) for _ in range(read_int(ends[0])))  # -1 if the job failed
            while ends[0].read(1 << 16):
                pass  # the writer must be able to finish before the socket is closed
        except (pa.ArrowException, EOFError):
            # The stream broke off because the job failed: raise Spark's own error, or this one if there is none.
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
def _tag_jobs(context: Any, tag: str) -> Iterator[None]:
    """Tag the jobs that are started within, so that they can be cancelled."""
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def _finish(server: Any) -> None:
    """Wait for the end of the job, and raise its error as PySpark would."""
    from pyspark.errors.exceptions.captured import unwrap_spark_exception

    with unwrap_spark_exception():
        server.getResult()


def _collect_connect(frame: Any) -> Generator[pa.RecordBatch]:
    client = frame._session.client
    plan = frame._plan
    for piece in read_compressed(client.to_table_as_iterator(plan.to_proto(client), plan.observations)):
        if isinstance(piece, pa.Table):
            yield from piece.to_batches()
