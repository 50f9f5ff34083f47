"""Publication of a file from the driver to every node, and deletion of the driver's own copy."""

from __future__ import annotations

import functools
import os
import tempfile
import uuid
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from sparkext.build_sides.index_store import remove_with_indexes
from sparkext.build_sides.published_files import ArtifactFile, BroadcastBytes, BroadcastFile
from sparkext.build_sides.sources import BuildSource
from sparkext.spark.internals import import_from_either
from sparkext.spark.jvm import access_class
from sparkext.spark.session_settings import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def publish_file(session: SparkSession, write: Callable[[IO[bytes]], object]) -> BuildSource:
    """Publish one file to every node. `write` writes it once, on the driver.

    Classic sessions publish it as a Spark broadcast, whose local file every worker of a node maps. With
    `spark.io.encryption.enabled` there is no such file, and each worker holds a copy in memory. Connect sessions
    publish it as an artifact.
    """
    if is_connect(session):
        return _publish_artifact(session, write)
    context = session.sparkContext
    _sweep()
    if context._encryption_enabled:
        return _publish_encrypted(context, write)
    return _publish_plainly(context, write)


def _publish_plainly(context: Any, write: Callable[[IO[bytes]], object]) -> BuildSource:
    class RawFileBroadcast(import_from_either("pyspark.core.broadcast", "pyspark.broadcast", "Broadcast")):  # type: ignore[misc]
        """A broadcast whose file holds the bytes that `write` wrote, not a pickle: workers map the file."""

        def dump(self, value: Any, f: Any) -> None:
            try:
                value(f)
                f.close()
            except BaseException:  # Spark would keep the incomplete file until the application ends
                Path(f.name).unlink(missing_ok=True)
                with suppress(OSError):
                    f.close()  # flushes the buffer, which fails if the disk is full
                raise

    broadcast: Any = RawFileBroadcast(context, write, context._pickled_broadcast_vars)
    _remember(context, broadcast)
    return BroadcastFile(broadcast)


def _publish_encrypted(context: Any, write: Callable[[IO[bytes]], object]) -> BuildSource:
    _warn_once(
        "spark.io.encryption.enabled is set: build sides cannot be mapped from disk, so every Python worker holds its"
        " own copy in memory."
    )
    sink = pa.BufferOutputStream()
    write(sink)
    return BroadcastBytes(uuid.uuid4().hex, context.broadcast(sink.getvalue().to_pybytes()))


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, stacklevel=3)


def _publish_artifact(session: Any, write: Callable[[IO[bytes]], object]) -> BuildSource:
    name = f"sparkext-{uuid.uuid4().hex}.build"
    with tempfile.TemporaryDirectory(prefix="sparkext-") as folder:
        path = Path(folder) / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            write(stream)
        session.addArtifacts(str(path), file=True)
    return ArtifactFile(name)


# Spark's context cleaner drops a broadcast when no plan refers to it any more, but keeps the driver's own copy of the
# file until the application ends. A weak reference in the JVM shows when the file may be deleted. It refers to the
# content of the broadcast, not to the broadcast itself: if Spark evicts the content from memory before the cleaner
# drops the broadcast, Spark reads the file again later.
_published: dict[str, Any] = {}


def _remember(context: Any, broadcast: Any) -> None:
    weak = access_class(context._jvm, "java.lang.ref.WeakReference")(broadcast._python_broadcast)
    _published[broadcast._path] = weakref.ref(context), weak


def _sweep() -> None:
    """Delete the driver's files of build sides that no plan refers to any more, and their indexes.

    Spark deletes the files of a stopped session only when the process ends; this function deletes them at the next
    publication.
    """
    for path, (context, weak) in list(_published.items()):
        owner = context()
        stopped = owner is None or owner._jsc is None
        # `get` would return a strong reference, which lasts until Py4J reports to the JVM that Python has dropped it.
        if stopped or weak.refersTo(None):
            with suppress(FileNotFoundError):  # its folder is gone, too
                remove_with_indexes(Path(path))
            _published.pop(path, None)  # another thread may have removed it already
