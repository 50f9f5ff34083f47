"""Files in buckets of a local S3-compatible store: the same rows as local files, or an error that names the file."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pyarrow import fs
from werkzeug.serving import make_server

from sparkext.config import read_settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.sources.scanned_splits import ScannedSplits
from sparkext.errors import FileReadError
from sparkext.parquet import decoded_sizes, fetched_ranges, file_stores, opened_file
from sparkext.parquet import scan as parquet_scan
from sparkext.parquet.file_stores import Bucket, LocalFiles, cache_identities, store_of
from sparkext.parquet.s3_settings import derive_bucket
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.expressions.expression import Expression, column, condition, literal
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.pipeline.scan import ScanColumn, ScanSpec, Split
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, PipelineSpec

NAME = "shelf"
TABLE = pa.table(
    {
        "k": pa.array(range(5000), pa.int64()),
        "s": [None if n % 11 == 5 else f"wort{n % 37}" for n in range(5000)],
        "v": pa.array([n * 0.5 for n in range(5000)]),
    }
)


class Throttling:
    """The store as a WSGI application. It answers "slow down" if `refuses` is true for a method and its count."""

    def __init__(self) -> None:
        self._store = DomainDispatcherApplication(create_backend_app)
        self.refuses: Callable[[str, int], bool] = lambda method, number: False
        self.asked: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method = environment["REQUEST_METHOD"]
        self.asked[method] += 1
        if not self.refuses(method, self.asked[method]):
            return self._store(environment, start)  # type: ignore[no-any-return]
        self.refused[method] += 1
        told = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
        start("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(told)))])
        return [] if method == "HEAD" else [told]


@contextmanager
def served(application: Any) -> Iterator[Bucket]:
    """Yield a bucket with its connection settings."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    bucket = Bucket.from_data(
        {"name": NAME, "endpoint": endpoint, "path_style": True, "access_key": "name", "secret_key": "word"}
    )
    writer(bucket, allow_bucket_creation=True).create_dir(NAME)
    try:
        yield bucket
    finally:
        server.shutdown()


@pytest.fixture(scope="module")
def store() -> Iterator[Bucket]:
    with served(Throttling()) as bucket:
        yield bucket


def writer(bucket: Bucket, **options: Any) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        access_key="name",
        secret_key="word",
        scheme="http",
        endpoint_override=bucket.endpoint,
        region="us-east-1",
        **options,
    )


def put(bucket: Bucket, key: str, table: pa.Table = TABLE, row_group_size: int = 300) -> Split:
    pq.write_table(table, f"{NAME}/{key}", row_group_size=row_group_size, filesystem=writer(bucket))
    return Split(f"s3a://{NAME}/{key}", 0, 1 << 62, ())


def scan_of(bucket: Bucket, filter_: Expression | None = None) -> ParquetScan:
    spec = ScanSpec(tuple(map(ScanColumn, TABLE.column_names)), 3, filter_, False)
    return ParquetScan(spec, pa.schema(list(zip("ksv", TABLE.schema.types, strict=True))), 512, buckets=(bucket,))


def rows_of(scan: ParquetScan, *splits: Split) -> pa.Table:
    batches = [
        pa.RecordBatch.from_arrays([rows.gather(ColumnRef(PROBE, n)) for n in range(3)], schema=scan.schema)
        for rows in scan.row_sets(splits)
    ]
    return pa.Table.from_batches(batches, scan.schema)


@pytest.mark.parametrize("key", ["plain.parquet", "a folder/x=1/ä%20b+c.parquet"])
def test_the_same_rows_however_they_are_read(store: Bucket, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    split = put(store, key)
    assert rows_of(scan_of(store), split) == TABLE
    assert scan_of(store).table([split, split], 2, lambda rows, size: None) == pa.concat_tables([TABLE, TABLE])
    monkeypatch.setattr(parquet_scan, "_AHEAD_OF_HEADROOM", 0)
    assert rows_of(scan_of(store), split) == TABLE
    monkeypatch.setattr(decoded_sizes, "MAX_GROUP_ROWS", 0)
    monkeypatch.setattr(opened_file, "_REQUESTED_BYTES", 1000)
    assert rows_of(scan_of(store), split) == TABLE


def test_columns_are_fetched_ahead_once_they_were_needed(store: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    split = put(store, "ahead.parquet")
    read: list[tuple[int, int]] = []
    ahead: dict[int, list[int]] = {}
    read_column, fetch = ParquetScan.read, parquet_scan._UnitColumns.fetch

    def reading(scan: ParquetScan, unit: Any, number: int, opened: Callable[[], Any]) -> Any:
        read.append((unit.first, number))
        return read_column(scan, unit, number, opened)

    def fetching(columns: Any, numbers: Any, pool: Any) -> None:
        ahead[columns.unit.first] = sorted(numbers)
        fetch(columns, numbers, pool)

    monkeypatch.setattr(ParquetScan, "read", reading)
    monkeypatch.setattr(parquet_scan._UnitColumns, "fetch", fetching)
    scan = scan_of(store)
    units = list(scan.units(split))
    for rows in scan.row_sets([split]):
        rows.gather(ColumnRef(PROBE, 1))
    assert sorted(read) == [(unit.first, 1) for unit in units]  # each unit once, and no column that is not required
    # The required columns are known once a unit has been read; until then, all columns are fetched.
    assert ahead == {unit.first: [0, 1, 2] if unit in units[:2] else [1] for unit in units}


def test_requests() -> None:
    """One request fetches adjacent columns, and a run caches the identity of a file."""
    application = Throttling()
    with served(application) as bucket:
        many = pa.table({name: np.random.default_rng(0).integers(0, 1 << 60, 400_000) for name in "ksv"})
        split = put(bucket, "many.parquet", many, row_group_size=100_000)
        scan = scan_of(bucket)
        scan.schema = pa.schema([(name, pa.int64()) for name in "ksv"])

        application.asked.clear()
        with cache_identities("a run"):
            rows = sum(len(rows.gather(ColumnRef(PROBE, 2))) for rows in scan.row_sets([split]))
            assert rows == 400_000
            scan.check_unchanged()
        # The file, its footer, the first two row groups with all columns, one column of the others, and a check of the
        # identity.
        assert application.asked == {"HEAD": 2, "GET": 5}

        application.asked.clear()
        with cache_identities("a run"):
            assert scan.identities([split.path] * 3) == {split.path: scan_of(bucket).identity(split.path)}
            assert scan.rows_of([split]) == 400_000
        assert not application.asked

        for asking in (cache_identities("another"), cache_identities(None), cache_identities(None), nullcontext()):
            with asking:
                scan.identity(split.path)
        assert application.asked == {"HEAD": 4}

        small = put(bucket, "small.parquet")
        application.asked.clear()
        assert rows_of(scan_of(bucket), small) == TABLE
        assert application.asked == {"HEAD": 1, "GET": 1}


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([(5, 9)], [(5, 9)]),
        ([(20, 30), (0, 10)], [(0, 10), (20, 30)]),
        ([(20, 30), (0, 11)], [(0, 30)]),
        ([(0, 10), (10, 50)], [(0, 50)]),
        ([(0, 10), (10, 51)], [(0, 10), (10, 51)]),
        ([(0, 90), (20, 30), (60, 99)], [(0, 99)]),
    ],
)
def test_ranges_to_ask_for(
    ranges: list[tuple[int, int]], expected: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_ranges, "MOST_GAP_BYTES", 9)
    monkeypatch.setattr(fetched_ranges, "MOST_REQUESTED_BYTES", 50)
    assert fetched_ranges.merge_ranges(ranges) == expected


def test_a_reader_that_is_left_early_leaves_no_thread_behind(store: Bucket) -> None:
    splits = [put(store, f"left{n}.parquet") for n in range(3)]
    rows = scan_of(store).row_sets(splits)
    next(rows).gather(ColumnRef(PROBE, 0))
    rows.close()  # type: ignore[attr-defined]


def test_filters_rule_out_row_groups(store: Bucket) -> None:
    split = put(store, "filtered.parquet", row_group_size=1000)
    scan = scan_of(store, condition("<", column(0, 0, KeyType("int64")), literal("1500", KeyType("int64"))))
    assert rows_of(scan, split) == TABLE.slice(0, 1500)
    assert scan.metrics.row_groups_pruned == 3


def test_what_cannot_be_read_is_named(store: Bucket) -> None:
    missing = Split(f"s3a://{NAME}/none.parquet", 0, 1 << 62, ())
    with pytest.raises(FileReadError, match=r"cannot read 's3a://shelf/none.parquet': no such file"):
        rows_of(scan_of(store), missing)
    with writer(store).open_output_stream(f"{NAME}/torn.parquet") as stream:
        stream.write(b"PAR1 and no more")
    with pytest.raises(FileReadError, match=r"cannot read 's3a://shelf/torn.parquet': ArrowInvalid"):
        rows_of(scan_of(store), replace(missing, path=f"s3a://{NAME}/torn.parquet"))
    away = replace(store, endpoint="127.0.0.1:1")
    with pytest.raises(FileReadError, match=r"cannot read 's3a://shelf/none.parquet': OSError"):
        rows_of(scan_of(away), missing)


def test_an_object_that_is_replaced_meanwhile_is_not_read_by_halves(store: Bucket) -> None:
    split = put(store, "replaced.parquet")
    scan = scan_of(store)
    rows = scan.row_sets([split])
    next(rows)
    put(store, "replaced.parquet", TABLE.slice(7))
    with pytest.raises(FileReadError, match="replaced"):
        for _ in rows:
            pass
        scan.check_unchanged()
    anew = scan_of(store)
    assert rows_of(anew, split) == TABLE.slice(7)
    anew.check_unchanged()


def test_what_is_replaced_is_not_given_out_beside_what_was_read_before(store: Bucket) -> None:
    """Even if the remaining rows are not required, as with a LIMIT.

    The columns have the offsets of the old file's columns.
    """

    def table(number: int) -> pa.Table:
        return TABLE.set_column(2, "v", pa.array([float(number)] * len(TABLE)))

    split = put(store, "limited.parquet", table(1))
    spec, schema = PipelineSpec(3, (), (ColumnRef(PROBE, 2),)), pa.schema([("v", pa.float64())])
    pipeline = create_pipeline(spec, [], schema, read_settings(lambda key: None, {}), Resources(lambda: None))
    batches = pipeline.run(ScannedSplits(scan_of(store), [split], spec, []))
    assert set(next(batches).column(0).to_pylist()) == {1.0}
    put(store, "limited.parquet", table(2))
    with pytest.raises(FileReadError, match=r"limited\.parquet': it was replaced while it was read"):
        next(batches)


def test_a_store_that_asks_for_fewer_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    application = Throttling()
    with served(application) as bucket:
        split = put(bucket, "throttled.parquet", row_group_size=2000)
        application.asked.clear()
        application.refuses = lambda method, number: number <= 1
        assert rows_of(scan_of(bucket), split) == TABLE
        assert application.refused == {"HEAD": 1, "GET": 1}
        for name, refused in (("GET", "during GetObject"), ("HEAD", "HTTP status 503")):
            monkeypatch.setattr(file_stores, "_ATTEMPTS", 2)
            file_stores.open_file_system.cache_clear()
            opened_file.open_parquet_file.cache_clear()  # otherwise, no request would be needed: the file is small
            application.refuses = lambda method, number, name=name: method == name  # type: ignore[misc]
            with pytest.raises(FileReadError, match=rf"cannot read 's3a://shelf/throttled.parquet': .*{refused}"):
                rows_of(scan_of(bucket), split)


def test_an_object_is_known_by_what_was_written(store: Bucket) -> None:
    path = put(store, "same.parquet").path
    before = scan_of(store).identity(path)
    assert scan_of(store).identity(path) == before
    put(store, "same.parquet", TABLE.set_column(0, "k", pa.array(range(1, 5001), pa.int64())))
    assert scan_of(store).identity(path) != before


def test_an_object_replaced_during_a_run(store: Bucket) -> None:
    """A later task of the run expects the object that the first task found, and reads no row of another."""
    split = put(store, "replaced.parquet")
    with cache_identities("a run"):
        assert rows_of(scan_of(store), split) == TABLE
    put(store, "replaced.parquet", TABLE.set_column(0, "k", pa.array(range(1, 5001), pa.int64())))
    scan = scan_of(store)
    with cache_identities("a run"), pytest.raises(FileReadError, match="it was replaced while it was read"):
        rows_of(scan, split)
        scan.check_unchanged()
    with cache_identities("the next"):
        assert rows_of(scan_of(store), split) != TABLE


def test_where_paths_lead() -> None:
    shelf = Bucket("shelf")
    assert store_of("/a/b://c/d", [shelf]) == LocalFiles()
    assert store_of("s3a://shelf/a/b", [Bucket("other"), shelf]) is shelf


SECRETS = {"fs.s3a.access.key": "who", "fs.s3a.secret.key": "word"}
REACHED = {
    "keys": (SECRETS, Bucket("b", access_key="who", secret_key="word")),
    "a session": (
        {**SECRETS, "fs.s3a.session.token": "t"},
        Bucket("b", access_key="who", secret_key="word", session_token="t"),
    ),
    "a session that is not asked for": (
        {**SECRETS, "fs.s3a.session.token": "t", "fs.s3a.aws.credentials.provider": "x.SimpleAWSCredentialsProvider"},
        Bucket("b", access_key="who", secret_key="word"),
    ),
    "no keys": ({}, Bucket("b")),
    "nobody": (
        {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
        Bucket("b", anonymous=True),
    ),
    "settings of the bucket": (
        {
            "fs.s3a.endpoint": "other",
            "fs.s3a.bucket.b.endpoint": "https://host:99/",
            "fs.s3a.path.style.access": "true",
        },
        Bucket("b", endpoint="host:99", path_style=True),
    ),
    "no tls": (
        {"fs.s3a.endpoint": "host", "fs.s3a.connection.ssl.enabled": "false"},
        Bucket("b", endpoint="host", tls=False),
    ),
    "aws": ({"fs.s3a.endpoint": "s3.amazonaws.com"}, Bucket("b")),
    "a region of aws": ({"fs.s3a.endpoint": "https://s3.eu-north-1.amazonaws.com"}, Bucket("b", region="eu-north-1")),
    "a region beside an endpoint of aws": (
        {"fs.s3a.endpoint": "s3.dualstack.eu-west-1.amazonaws.com", "fs.s3a.endpoint.region": "eu-west-1"},
        Bucket("b", endpoint="s3.dualstack.eu-west-1.amazonaws.com", region="eu-west-1"),
    ),
    **{
        endpoint: ({"fs.s3a.endpoint": endpoint}, "bucket b: the region of fs.s3a.endpoint is unknown")
        for endpoint in (
            "s3-accelerate.amazonaws.com",
            "s3.dualstack.eu-west-1.amazonaws.com",
            "s3.cn-north-1.amazonaws.com.cn",
            "https://host:9000/base/",
        )
    },
    "keys in a store": (
        {"fs.s3a.security.credential.provider.path": "jceks://file/x"},
        "bucket b: fs.s3a.security.credential.provider.path is set",
    ),
    "what is neither true nor false": ({"fs.s3a.path.style.access": "yes"}, Bucket("b")),
    "a region": ({"fs.s3a.endpoint.region": "eu-north-1"}, Bucket("b", region="eu-north-1")),
    "encrypted by the server": ({"fs.s3a.encryption.algorithm": "SSE-KMS"}, Bucket("b")),
    "keys of the client": ({"fs.s3a.encryption.algorithm": "CSE-KMS"}, "bucket b: fs.s3a.encryption.algorithm is set"),
    "a proxy": ({"fs.s3a.proxy.host": "p"}, "bucket b: fs.s3a.proxy.host is set"),
    "a provider of one's own": (
        {"fs.s3a.aws.credentials.provider": "x.SimpleAWSCredentialsProvider, com.acme.Vault"},
        "bucket b: credentials of Vault",
    ),
    "providers that have nothing": (
        {"fs.s3a.aws.credentials.provider": "x.SimpleAWSCredentialsProvider"},
        "bucket b: no credentials in its settings",
    ),
}


@pytest.mark.parametrize("name", REACHED)
def test_settings_of_the_connector(name: str) -> None:
    settings, expected = REACHED[name]
    assert derive_bucket("b", settings.get) == expected


def test_secrets_are_not_printed() -> None:
    assert "word" not in repr(derive_bucket("b", SECRETS.get))
