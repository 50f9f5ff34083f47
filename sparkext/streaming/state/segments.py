"""Segments: files with rows of a stream and their metadata.

A segment is a container (`sparkext.storage.container`) with one block, an Arrow stream; its footer has a `SegmentInfo`.
It is published atomically. A task that runs again replaces it by a segment with the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.errors import BuildFileError, StateError
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.storage.container import ContainerWriter, read_footer
from sparkext.streaming.state.places import Location

STATE_VERSION = 1
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_WRAP = 1 << 64


@dataclass(frozen=True)
class SegmentInfo:
    """Metadata of rows.

    These are their number, the sum of their fingerprints, the latest time (µs) at which one of them can be matched
    (None: no limit), and their bytes on disk.
    """

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {
        "bytes": "depends on compression, and is 0 before rows are stored"
    }

    rows: int = 0
    checksum: int = 0
    until: int | None = None
    bytes: int = 0

    def __add__(self, other: SegmentInfo) -> SegmentInfo:
        """Return the metadata of both sets of rows together."""
        times = [time for time in (self.until, other.until) if time is not None]
        return SegmentInfo(
            self.rows + other.rows,
            (self.checksum + other.checksum) % _WRAP,
            max(times, default=None),
            self.bytes + other.bytes,
        )


def checksum_of(hashes: Int64Array) -> int:
    """Return the sum of fingerprints, modulo 2**64."""
    return int(hashes.view(np.uint64).sum(dtype=np.uint64))


def find_latest(times: pa.Array | pa.ChunkedArray) -> int | None:
    """Return the latest of these timestamps in µs, None if all are null or there are none."""
    latest = pc.max(times)
    return None if not latest.is_valid else int(latest.cast(pa.timestamp("us", latest.type.tz)).value)


def write_segment(
    location: Location,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    info: Callable[[], SegmentInfo],
    **metadata: Any,
) -> SegmentInfo:
    """Write a segment, which replaces an existing one; return its metadata.

    `info` is called after all batches have been written. `read_metadata` returns its result and all of `metadata`.
    """
    with location.open_writer() as stream:
        writer = ContainerWriter(stream)

        def write(block: Any) -> None:
            with pa.ipc.new_stream(block, schema, options=_OPTIONS) as rows:
                for batch in batches:
                    rows.write_batch(batch)

        at, size = writer.block(write)
        written_info = replace(info(), bytes=size)
        writer.finish({**metadata, "state": STATE_VERSION, "rows": [at, size], "info": asdict(written_info)})
    return written_info


def read_metadata(location: Location) -> dict[str, Any]:
    """Return the metadata that `write_segment` stored in a segment, with `info` as `SegmentInfo`.

    Raises
    ------
    StateError
        The segment is missing, damaged or of another version.
    """
    try:
        footer = location.footer()
    except (OSError, BuildFileError) as error:
        raise _create_read_error(location, error) from error
    if footer.get("state") != STATE_VERSION:
        raise StateError(
            f"{location} has version {footer.get('state')} of the state, but this package reads version"
            f" {STATE_VERSION}: use the version of sparkext that wrote it, or start with a new checkpoint"
        )
    return {**footer, "info": SegmentInfo(**footer["info"])}


def read_segment(location: Location) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment.

    Raises
    ------
    StateError
        As in `read_metadata`.
    """
    try:
        buffer = location.content()
        at, size = read_footer(buffer, str(location))["rows"]
    except (OSError, BuildFileError) as error:
        raise _create_read_error(location, error) from error
    with pa.ipc.open_stream(buffer.slice(at, size)) as reader:
        yield from reader


def sum_infos(infos: Iterable[SegmentInfo]) -> SegmentInfo:
    """Return the sum of the metadata."""
    return reduce(SegmentInfo.__add__, infos, SegmentInfo())


def _create_read_error(location: Location, error: Exception) -> StateError:
    problem = "no such file" if isinstance(error, FileNotFoundError) else str(error)
    return StateError(
        f"the state of a stream cannot be read from {location}: {problem}. Restore the checkpoint, or start with a new"
        " checkpoint"
    )
