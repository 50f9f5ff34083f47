"""Tells the tasks of streaming queries where the checkpoint of their query lies, which Spark keeps to its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_query(value: object) -> bool:
    """Return whether `value` is a streaming query of a classic session."""
    from pyspark.sql.streaming.query import StreamingQuery

    return isinstance(value, StreamingQuery)


_told: WeakSet[Any] = WeakSet()


def tell_checkpoints(session: SparkSession, checkpoint: str, run: str) -> None:
    """Let tasks of all queries that start from now on find location and run in local properties of these names.

    A query calls its listeners in the thread that runs its batches, before the first of them; what is set there, tasks
    inherit.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Telling(StreamingQueryListener):
        """Sets the properties of a query that starts."""

        def onQueryStarted(self, event: Any) -> None:
            query = session.streams.get(str(event.id))
            if query is None:
                return
            location = cast(Any, query)._jsq.streamingQuery().resolvedCheckpointRoot()
            session.sparkContext.setLocalProperty(checkpoint, location)
            session.sparkContext.setLocalProperty(run, str(event.runId))

        def onQueryProgress(self, event: Any) -> None:
            pass

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            pass

    if session not in _told:
        session.streams.addListener(Telling())
        _told.add(session)
