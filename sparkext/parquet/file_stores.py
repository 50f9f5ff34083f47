"""Stores of data files, as workers see them: local disks, and buckets that Spark reads through its S3A connector.

A path names a local file, or is `scheme://bucket/key`. Rows of a file are used only if the file has the same identity
before and after they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Protocol

from sparkext.jvm_constants import S3_AWS_ENDPOINT
from sparkext.storage.container import identify_file
from sparkext.storage.last_used import LruCache

Identity = tuple[int | str, ...]
"""Values that change when a file is replaced."""

_REMOTE = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]+)/(.+)", re.DOTALL)
AWS_ENDPOINT = re.compile(S3_AWS_ENDPOINT)

_IDENTITY = ("ETag", "Content-Length", "Last-Modified")

REQUESTS = 16
"""Concurrent requests of a task to remote files."""

_OPENED_OBJECTS = 256
"""Maximum number of open objects that are cached, so that reading an object does not request its metadata again."""

_CONNECT_SECONDS = 10
_REQUEST_SECONDS = 60
_ATTEMPTS = 5


class FileStore(Protocol):
    """Provides access to files by path."""

    @property
    def is_remote(self) -> bool:
        """Return whether requests have a high latency, so that concurrent requests are faster."""
        ...

    def __hash__(self) -> int: ...

    def identity(self, path: str) -> Identity:
        """Return the identity of the file at a path. Raises OSError if there is none, or if it cannot be determined."""
        ...

    def source(self, path: str, identity: Identity) -> Any:
        """Return a source for Arrow to read the file with this recent identity; several threads may use it."""
        ...


@dataclass(frozen=True)
class LocalFiles:
    """Files of this node."""

    is_remote = False

    def identity(self, path: str) -> Identity:
        """Return inode, size and times (see `identify_file`)."""
        return identify_file(Path(path))

    def source(self, path: str, identity: Identity) -> Any:
        """Return the path, for Arrow to open."""
        return path


@dataclass(frozen=True)
class Bucket:
    """A bucket of an S3-compatible store, and its access settings. `endpoint`: None for AWS, otherwise the host.

    Without keys, credentials are found as by the tools of AWS: in the environment, a web identity, or the role of the
    container or the instance.
    """

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {
        "anonymous": "the identity of the reader, not the contents of the bucket",
        "access_key": "the identity of the reader, not the contents of the bucket",
        "secret_key": "the identity of the reader, not the contents of the bucket",
        "session_token": "the identity of the reader, not the contents of the bucket",
    }

    name: str
    endpoint: str | None = None
    region: str | None = None
    tls: bool = True
    path_style: bool = False
    anonymous: bool = False
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    is_remote = True

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Bucket:
        """Parse S3A's settings, with this class's field names as keys. An AWS endpoint determines only the region."""
        fields = {name: value for name, value in data.items() if value not in (None, "")}
        endpoint = fields.pop("endpoint", "")
        aws = AWS_ENDPOINT.fullmatch(endpoint)
        if aws is None and endpoint:
            scheme, _, host = endpoint.rpartition("://")
            fields["endpoint"] = host.rstrip("/")
            if scheme:
                fields["tls"] = scheme == "https"
        elif aws is not None and aws.group(1) is not None:
            fields.setdefault("region", aws.group(1))
        return cls(**fields)

    def identity(self, path: str) -> Identity:
        """Return the object's size, modification time, and ETag, which every store assigns to written objects."""
        opened = open_file_system(self).open_input_file(self._key(path))
        metadata = {str(name): value.decode() for name, value in opened.metadata().items()}
        if "ETag" not in metadata:
            raise OSError("the store returns no ETag, which is required to identify the object")
        identity = tuple(metadata.get(name, "") for name in _IDENTITY)
        with _TURN:
            _OPENED[self, path] = identity, opened
        return identity

    def source(self, path: str, identity: Identity) -> Any:
        """Open the object once; threads read ranges of it with separate requests."""
        with _TURN:
            cached = _OPENED.get((self, path))
        if cached is not None and cached[0] == identity:
            return cached[1]
        return open_file_system(self).open_input_file(self._key(path))

    def _key(self, path: str) -> str:
        matched = _REMOTE.fullmatch(path)
        assert matched is not None and matched.group(2) == self.name, path
        return f"{self.name}/{matched.group(3)}"


_OPENED: LruCache[tuple[Bucket, str], tuple[Identity, Any]] = LruCache(_OPENED_OBJECTS)
_TURN = Lock()


def is_local_path(path: str) -> bool:
    """Return whether a path names a local file."""
    return _REMOTE.fullmatch(path) is None


def split_remote_path(path: str) -> tuple[str, str]:
    """Return scheme and bucket of a remote path."""
    matched = _REMOTE.fullmatch(path)
    assert matched is not None, path
    return matched.group(1), matched.group(2)


def store_of(path: str, buckets: Sequence[Bucket]) -> FileStore:
    """Return the store of a path; `buckets` are the available ones."""
    if is_local_path(path):
        return LocalFiles()
    name = split_remote_path(path)[1]
    return next(bucket for bucket in buckets if bucket.name == name)


class _CachedIdentities:
    """Cached identities of remote files: of the last `run`, and of the current task with all its threads."""

    run: str | None = None
    by_run: dict[str, Identity]
    now: dict[str, Identity] | None = None


@contextmanager
def cache_identities(run: str | None) -> Iterator[None]:
    """Request the identity of a remote file once for all tasks of a query's run in this process: requests are slow.

    A task without a known run counts as a run of its own. The check after reading detects a file that has been replaced
    meanwhile.
    """
    if run is None or run != _CachedIdentities.run:
        _CachedIdentities.run, _CachedIdentities.by_run = run, {}
    _CachedIdentities.now = identities = _CachedIdentities.by_run
    try:
        yield
    finally:
        if _CachedIdentities.now is identities:
            _CachedIdentities.now = None


def identity_of(path: str, buckets: Sequence[Bucket]) -> Identity:
    """Return the identity of the file at a path, cached for the present run. Raises OSError as stores do."""
    store = store_of(path, buckets)
    if not store.is_remote or _CachedIdentities.now is None:
        return store.identity(path)
    if path not in _CachedIdentities.now:
        _CachedIdentities.now[path] = store.identity(path)
    return _CachedIdentities.now[path]


@lru_cache
def open_file_system(bucket: Bucket) -> Any:
    """Return the Arrow file system of a bucket."""
    import pyarrow as pa
    from pyarrow import fs

    pa.set_io_thread_count(max(pa.io_thread_count(), REQUESTS))
    return fs.S3FileSystem(
        access_key=bucket.access_key,
        secret_key=bucket.secret_key,
        session_token=bucket.session_token,
        anonymous=bucket.anonymous,
        region=bucket.region or _resolve_region(bucket),
        scheme="https" if bucket.tls else "http",
        endpoint_override=bucket.endpoint,
        force_virtual_addressing=bucket.endpoint is not None and not bucket.path_style,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


def _resolve_region(bucket: Bucket) -> str:
    """Return a bucket's region, requested from AWS; other stores accept any region."""
    from pyarrow import fs

    return "us-east-1" if bucket.endpoint is not None else str(fs.resolve_s3_region(bucket.name))
