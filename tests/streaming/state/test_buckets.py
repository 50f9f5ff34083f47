"""Checkpoints in an S3 bucket: workers read and write the state there as in a folder.

Queries of Spark with a checkpoint in a bucket run in `tests/extension/scripts/from_object_store.py`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from sparkext.errors import StateError
from sparkext.parquet.file_stores import Bucket
from sparkext.plans.streams import runs
from sparkext.streaming.state import places
from sparkext.streaming.state.places import BucketLocation, LocalLocation, Location, resolve_location
from sparkext.streaming.state.segments import SegmentInfo, read_metadata, read_segment, write_segment
from tests.streaming.join import test_stream_tasks as in_folders
from tests.streaming.tasks import Query

ODD = "a query #1? 100%25 ü"
"""A folder name with every character that is special in a URL."""

ROWS = pa.record_batch({"n": pa.array(range(5000))})


@pytest.fixture(scope="module")
def s3a() -> Iterator[Mapping[str, str]]:
    """Yield the settings of a connector to a store with a bucket called `shelf`."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    reached = {
        "endpoint": f"http://{host}:{port}",
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": "who",
        "secret.key": "word",
    }
    settings = {f"fs.s3a.{key}": value for key, value in reached.items()}
    keys = {"aws_access_key_id": "who", "aws_secret_access_key": "word", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=reached["endpoint"], **keys).create_bucket(Bucket="shelf")
    yield settings
    server.stop()


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, s3a: Mapping[str, str], tmp_path: Path) -> Location:
    if request.param == "folder":
        return resolve_location(f"file:{tmp_path}/{ODD}", {})
    return resolve_location(f"s3a://shelf/{ODD}/{request.node.name}", s3a)


def test_places(place: Location) -> None:
    one, other = place / "x" / "1", place / "x" / "2"
    assert not one.exists() and hash(one) == hash(place / "x" / "1") and one != other
    for read in (one.text, one.footer, one.content):
        with pytest.raises(FileNotFoundError):
            read()
    assert one.claim("me") == "me" and one.claim("you") == "me" and one.text() == "me"
    other.claim("you")
    assert ODD in str(one)
    (place / "x").clear(but="1")
    assert one.exists() and not other.exists()
    (place / "x").clear()
    assert not one.exists()
    (place / "nothing").clear()


@pytest.mark.parametrize(
    "told", [1, pytest.param(20_000, marks=pytest.mark.whole(reason="reads 200 KB in requests of 100 bytes"))]
)
def test_segments(place: Location, told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The footer is read on its own, even if it is longer than one request."""
    monkeypatch.setattr(places, "_PIECE", 100)
    where = place / "0-0" / "0.segment"
    info = write_segment(where, ROWS.schema, [ROWS, ROWS], lambda: SegmentInfo(10_000, 7), more="x" * told * 10)
    assert read_metadata(where)["info"] == info and info.bytes > 0
    assert sum(batch.num_rows for batch in read_segment(where)) == 10_000
    with pytest.raises(RuntimeError), where.open_writer() as stream:
        stream.write(b"half")
        raise RuntimeError("the worker dies")
    assert read_metadata(where)["info"] == info, "what is half written takes no other's place"


def test_a_folder_that_several_tasks_clear_at_a_time(place: Location) -> None:
    """All tasks of a query's first batch clear the claims of the previous run."""
    for number in range(20):
        (place / "x" / str(number)).claim("me")
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(lambda _: (place / "x").clear(but="7"), range(4))] == [None] * 4
    assert [number for number in range(20) if (place / "x" / str(number)).exists()] == [7]


def test_what_is_damaged(s3a: Mapping[str, str]) -> None:
    where = resolve_location("s3a://shelf/damaged/0.segment", s3a)
    assert isinstance(where, BucketLocation)
    for content in (b"", b"too short", bytes(1000)):
        where._put(pa.py_buffer(content))
        for read in (read_metadata, lambda place: [*read_segment(place)]):
            with pytest.raises(StateError, match=r"s3a://shelf/damaged/0\.segment"):
                read(where)


@pytest.mark.parametrize("on", ["range", "key"])
def test_a_join(on: str, s3a: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query resumes with other batches, on a node that has no index of its state."""
    monkeypatch.setattr(runs, "FAN_OUT", 3)
    draw = random.Random(on)
    query = Query(in_folders.joined(on, partitions=2), f"s3a://shelf/{ODD} {on}", draw, s3a=s3a)
    new = []
    for number in range(5):
        node = tmp_path / f"node {number % 2}"
        node.mkdir(exist_ok=True)
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(node))
        new.append((in_folders.left_rows(draw, 20), in_folders.right_rows(draw, 20)))
        if number == 3:
            query.attempt([new[-1][0]], [new[-1][1]], only=[0])
            query.restart()
        query.process([new[-1][0]], [new[-1][1]])
    left, right = (in_folders.together(side) for side in zip(*new, strict=True))
    assert query.emitted == in_folders.pairs(left, right, in_folders.CONDITIONS[on][1])
    store = resolve_location("s3a://shelf/", s3a)
    assert isinstance(store, BucketLocation)
    found = [info.path for info in store._store.get_file_info(fs.FileSelector(f"shelf/{ODD} {on}", recursive=True))]
    assert any(name.startswith(f"shelf/{ODD} {on}/sparkext/") and name.endswith(".segment") for name in found)


def test_what_workers_do_not_reach() -> None:
    with pytest.raises(StateError, match=r"hdfs://x/y: workers cannot access hdfs://"):
        resolve_location("hdfs://x/y", {})
    with pytest.raises(StateError, match=r"s3a://b/c: bucket b: credentials of Odd"):
        resolve_location("s3a://b/c", {"fs.s3a.aws.credentials.provider": "com.x.Odd"})
    assert resolve_location("s3a://b/c/", {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b"}) == BucketLocation(
        Bucket("b", access_key="a", secret_key="b"), "c"
    )
    assert "secret" not in repr(
        resolve_location("s3a://b/c", {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "secret"})
    )
    assert resolve_location("/a b", {}) == LocalLocation(Path("/a b"))


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (f"file:/{ODD}/b", f"/{ODD}/b"),
        (f"file:///{ODD}", f"/{ODD}"),
        (f"/{ODD}", f"/{ODD}"),
        ("file:/a:b", "/a:b"),
        ("/file:/a", "/file:/a"),
        ("/a\tb\nc", "/a\tb\nc"),
        ("file:/a//b/./c/../d/", "/a/b/d"),
        ("file://host/a", "/a"),
        ("", "."),
    ],
)
def test_local_paths_are_read_as_they_are(location: str, path: str) -> None:
    assert resolve_location(location, {}) == LocalLocation(Path(path))


@pytest.mark.parametrize("key", ["a#b", "a?b", "a%20b", "a b/ü", "a:b//c", "c://d"])
def test_keys_are_read_as_they_are(key: str) -> None:
    keys = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b"}
    assert resolve_location(f"s3a://bucket/{key}", keys) == BucketLocation(
        Bucket("bucket", access_key="a", secret_key="b"), key.replace("//", "/")
    )
