"""Passes the location of a streaming query's checkpoint to its tasks, which Spark exposes only on the driver."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from sparkext.spark.jvm import access_class
from sparkext.spark.session_settings import read_s3a_settings
from sparkext.streaming.state.micro_batch import CHECKPOINT, RUN, SECRETS
from sparkext.streaming.state.places import split_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

_sessions_with_listener: WeakSet[Any] = WeakSet()


def report_checkpoints(session: SparkSession) -> None:
    """Set local properties with the checkpoint location and the run id, for tasks of all queries started from now on.

    `SECRETS` has the S3A settings for the checkpoint's bucket as JSON; it is unset if the checkpoint is not in an
    `s3a:` bucket. A query calls its listeners in the thread that runs its batches, before the first batch, and tasks
    inherit the local properties of that thread.
    """
    if session not in _sessions_with_listener:
        session.streams.addListener(cast("StreamingQueryListener", _Reporting(session)))
        _sessions_with_listener.add(session)


class _Reporting:
    """Sets the properties of a query that starts.

    It implements Spark's interface itself, because PySpark's base class converts the progress of every batch before it
    calls a listener. That costs the driver 0.1 s of CPU time: each Java collection ends with an exception, for which
    PySpark looks up a dozen classes in all jars.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def _jlistener(self) -> Any:
        """The listener that PySpark registers."""
        wrapper = "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper"
        return access_class(self._session.sparkContext._jvm, wrapper)(self)

    def onQueryStarted(self, event: Any) -> None:
        query = self._session.streams.get(event.id().toString())
        if query is None:
            return
        location = cast(Any, query)._jsq.streamingQuery().resolvedCheckpointRoot()
        context: Any = self._session.sparkContext
        scheme, bucket, _ = split_location(location)
        s3a = None
        if scheme == "s3a":
            s3a = json.dumps(read_s3a_settings(self._session, bucket))
            # Event logs redact a local property only if it is also a key of the configuration.
            context._jsc.sc().conf().set(SECRETS, "")
        for name, value in ((CHECKPOINT, location), (RUN, event.runId().toString()), (SECRETS, s3a)):
            context.setLocalProperty(name, value)

    def onQueryProgress(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
