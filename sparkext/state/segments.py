"""Segments: rows of a stream in a file, with what is told of them.

A segment is a container (`sparkext.storage.container`) of one block, an Arrow stream; its footer has a `SegmentInfo`.
It is renamed to its name when it is whole, and a task that runs again writes it again: with the same rows.
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
from sparkext.kernels.buffers import Int64Array
from sparkext.state.places import Place
from sparkext.storage.container import ContainerWriter, read_footer

STATE_VERSION = 1
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_WRAP = 1 << 64


@dataclass(frozen=True)
class SegmentInfo:
    """What is told of rows: how many, the sum of their fingerprints, up to which time (µs) one of them still matches
    others (None: for ever), and their bytes on disk.
    """

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {"bytes": "how rows are compressed, and 0 before they are stored"}

    rows: int = 0
    checksum: int = 0
    until: int | None = None
    bytes: int = 0

    def __add__(self, other: SegmentInfo) -> SegmentInfo:
        """Return what is told of both together."""
        times = [time for time in (self.until, other.until) if time is not None]
        return SegmentInfo(
            self.rows + other.rows,
            (self.checksum + other.checksum) % _WRAP,
            max(times, default=None),
            self.bytes + other.bytes,
        )


def checksum_of(hashes: Int64Array) -> int:
    """Return the sum of fingerprints, 64 bits of it."""
    return int(hashes.view(np.uint64).sum(dtype=np.uint64))


def newest(times: pa.Array | pa.ChunkedArray) -> int | None:
    """Return the latest of these timestamps, in microseconds; None if there is none."""
    found = pc.max(times)
    return None if not found.is_valid else int(found.cast(pa.timestamp("us", found.type.tz)).value)


def write_segment(
    place: Place, schema: pa.Schema, batches: Iterable[pa.RecordBatch], info: Callable[[], SegmentInfo], **told: Any
) -> SegmentInfo:
    """Write rows, and take the place of what lies there; return what is told of them.

    `info` describes them, and is asked when all batches have been written. `read_told` reads it and `told` back.
    """
    with place.writing() as stream:
        writer = ContainerWriter(stream)

        def write(block: Any) -> None:
            with pa.ipc.new_stream(block, schema, options=_OPTIONS) as rows:
                for batch in batches:
                    rows.write_batch(batch)

        at, size = writer.block(write)
        written = replace(info(), bytes=size)
        writer.finish({**told, "state": STATE_VERSION, "rows": [at, size], "info": asdict(written)})
    return written


def read_told(place: Place) -> dict[str, Any]:
    """Return what was told of a segment, `info` as `SegmentInfo`.

    Raises
    ------
    StateError
        It is lost or damaged, or of another version.
    """
    try:
        footer = place.footer()
    except (OSError, BuildFileError) as error:
        raise _lost(place, error) from error
    if footer.get("state") != STATE_VERSION:
        raise StateError(
            f"{place} is of version {footer.get('state')} of the state, this package reads {STATE_VERSION}"
        )
    return {**footer, "info": SegmentInfo(**footer["info"])}


def rows_of_segment(place: Place) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment.

    Raises
    ------
    StateError
        As `read_told` does.
    """
    try:
        buffer = place.content()
        at, size = read_footer(buffer, str(place))["rows"]
    except (OSError, BuildFileError) as error:
        raise _lost(place, error) from error
    with pa.ipc.open_stream(buffer.slice(at, size)) as reader:
        yield from reader


def total(infos: Iterable[SegmentInfo]) -> SegmentInfo:
    """Return what is told of all together."""
    return reduce(SegmentInfo.__add__, infos, SegmentInfo())


def _lost(place: Place, error: Exception) -> StateError:
    problem = "it is not there" if isinstance(error, FileNotFoundError) else str(error)
    return StateError(
        f"state of a stream cannot be read from {place}: {problem}. Restore the checkpoint, or begin with another"
    )
