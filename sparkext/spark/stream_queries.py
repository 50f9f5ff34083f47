"""Passes the location of a streaming query's checkpoint to its tasks, which Spark exposes only on the driver."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from sparkext.spark.session_settings import s3a_settings
from sparkext.state.places import parts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_query(value: object) -> bool:
    """Return whether `value` is a streaming query of a classic session."""
    from pyspark.sql.streaming.query import StreamingQuery

    return isinstance(value, StreamingQuery)


_told: WeakSet[Any] = WeakSet()


def tell_checkpoints(session: SparkSession, checkpoint: str, run: str, secrets: str) -> None:
    """Set local properties with the checkpoint location and the run id, for tasks of all queries started from now on.

    `checkpoint`, `run` and `secrets` are the names of the properties. The property `secrets` has the S3A settings for
    the checkpoint's bucket as JSON; it is unset if the checkpoint is not in an `s3a:` bucket. A query calls its
    listeners in the thread that runs its batches, before the first batch, and tasks inherit the local properties of
    that thread.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Telling(StreamingQueryListener):
        """Sets the properties of a query that starts."""

        def onQueryStarted(self, event: Any) -> None:
            query = session.streams.get(str(event.id))
            if query is None:
                return
            location = cast(Any, query)._jsq.streamingQuery().resolvedCheckpointRoot()
            context: Any = session.sparkContext
            scheme, bucket, _ = parts_of(location)
            s3a = None
            if scheme == "s3a":
                s3a = json.dumps(s3a_settings(session, bucket))
                # Event logs redact a local property only if it is also a key of the configuration.
                context._jsc.sc().conf().set(secrets, "")
            for name, value in ((checkpoint, location), (run, str(event.runId)), (secrets, s3a)):
                context.setLocalProperty(name, value)

        def onQueryProgress(self, event: Any) -> None:
            pass

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            pass

    if session not in _told:
        session.streams.addListener(Telling())
        _told.add(session)
