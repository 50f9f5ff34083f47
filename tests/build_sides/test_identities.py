"""A cached index is used only for identical rows. Each field of each identity is changed, at any depth.

For each change, either the fingerprint changes, or rows and index are byte-identical. The test fails for an identity
without a sample here, and for a field of a type that cannot be changed here.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkFiles
from pyspark.core.broadcast import _broadcastRegistry

import sparkext
from sparkext.build_sides.cached_rows import CachedRows
from sparkext.build_sides.file import write_build_file
from sparkext.build_sides.index_recipe import IndexRecipe, derive_index_recipe
from sparkext.build_sides.published_files import ArtifactFile, BroadcastBytes, BroadcastFile, StreamedBroadcast
from sparkext.build_sides.sources import IndexedSource, SemiJoinReduction
from sparkext.config import Settings, read_settings
from sparkext.engine.derived_rows import DerivedRows, ReducedRows
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.kernels.keys.hashing import FULL_MASK
from sparkext.parquet.file_stores import Bucket
from sparkext.parquet.metrics import ScanMetrics
from sparkext.parquet.rules import Calendars
from sparkext.parquet.scan import ParquetScan
from sparkext.parquet.statistics import ProbeBounds
from sparkext.plans.expressions.expression import Expression, column, condition, literal
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.pipeline.aggregates import AggregateCall, Aggregation
from sparkext.plans.pipeline.projection import Projection
from sparkext.plans.pipeline.scan import ScanColumn, ScanSpec, Split
from sparkext.plans.pipeline.spec import AsOf, ColumnRef, JoinSpec, KeyPair, PipelineSpec, RangePair
from sparkext.plans.pipeline.top import OrderColumn, Top
from sparkext.plans.streams.runs import BatchRun
from sparkext.storage.fingerprint import fingerprint_of, list_covered_fields
from sparkext.streaming.state.nearest_order import NearestOrder
from sparkext.streaming.state.places import BucketLocation, LocalLocation
from sparkext.streaming.state.run_rows import RunRows
from sparkext.streaming.state.segments import write_segment
from sparkext.streaming.state.stream_state import MatchedRows, StoredSegment, StoredSide

INT, BOOL = KeyType("int64"), KeyType("bool")
RECIPE = IndexRecipe((0,), (pa.int64(),), (False,), "auto", FULL_MASK, may_cluster=True, gathered=(0, 1))
WHOLE = 2**62
LIMITS = 1 << 30, 1
ROWS = pa.table({"k": [3, 1, 3, 2, None], "v": [0, 1, 2, 3, 4], "g": [0, 0, 1, 1, 1]})
SIDE = StoredSide(pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))]), 1, 10)


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)


# --- a sample of each identity ---


def scan_of(**changed: Any) -> ParquetScan:
    spec = ScanSpec(tuple(map(ScanColumn, ROWS.column_names[:2])), 2, None, case_sensitive=False)
    return replace(ParquetScan(spec, pa.schema([("c0", pa.int64()), ("c1", pa.int64())]), 1 << 20), **changed)


def file_of(folder: Path, name: str = "rows") -> str:
    """Return the path of a file of several row groups; another file has the same name with an `x` appended."""
    if not (folder / name).exists():
        pq.write_table(ROWS, folder / name, row_group_size=2)
        pq.write_table(ROWS.slice(0, 4), folder / f"{name}x")
    return str(folder / name)


def scanned(folder: Path) -> ScannedFiles:
    kept = condition("<", column(0, 1, INT), literal("3", INT))
    scan = scan_of(calendars=Calendars(True, True))
    scan = replace(scan, spec=replace(scan.spec, filter=kept))
    return ScannedFiles(scan, (Split(file_of(folder), 0, WHOLE, ("value",)),), *LIMITS)


def pipelined(folder: Path) -> DerivedRows:
    join = JoinSpec("inner", (KeyPair(ColumnRef(0, 0), 0, "int64", False),), "auto", "dims")
    spec = PipelineSpec(2, (join,), (ColumnRef(0, 0), ColumnRef(0, 1), ColumnRef(1, 1)))
    total = Expression("+", INT, (column(0, 1, INT), column(0, 2, INT)))
    projection = Projection(
        condition("<", column(0, 1, INT), literal("9", INT)), (Expression("column", None, column=0), total)
    )
    path = file_of(folder, "facts")
    cut = Path(path).stat().st_size // 2
    parts = ((Split(path, cut, WHOLE, ()),), (Split(path, 0, cut, ()),))
    integers = pa.schema([(f"c{number}", pa.int64()) for number in range(3)])
    return DerivedRows(
        spec,
        scan_of(),
        parts,
        (scanned(folder),),
        integers,
        projection,
        pa.schema([*integers][:2]),
        read_settings({}.get, {}),
        *LIMITS,
        dropping=(
            SemiJoinReduction(
                replace(join, how="semi"), IndexedSource(scanned(folder), derive_index_recipe(spec, 0, FULL_MASK))
            ),
        ),
    )


def reduced(folder: Path) -> ReducedRows:
    return ReducedRows(**vars(pipelined(folder)), whole=replace(pipelined(folder), dropping=()))


def run_rows(folder: Path, stored: StoredSide = SIDE, place: Any = None) -> RunRows:
    width = len(stored.schema) - 2
    columns = {"k": [3, 1, 3, 2], "t": [3, 2, 2, 1], "until": [13, 12, 12, 11], "bucket": [0] * 4, "row": [1, 2, 3, 4]}
    picked = [[*columns.values()][n] for n in (*range(width), *range(2, len(columns)))][: len(stored.schema)]
    rows = pa.table([pa.array(v).cast(t) for v, t in zip(picked, stored.schema.types, strict=True)], stored.schema)
    place = LocalLocation(folder / "cp") if place is None else place
    return RunRows(place, 0, BatchRun(0, 7), range(0, 9), stored, rows, stored.info(rows), *LIMITS)


def nearest(folder: Path) -> RunRows:
    order = NearestOrder(2, 1, 0, (0,), last_only=False)
    return run_rows(folder, replace(SIDE, numbered=True, order=order))


def in_a_bucket(folder: Path) -> RunRows:
    return run_rows(folder, place=BucketLocation(Bucket("shelf"), "cp"))


def matched(folder: Path) -> RunRows:
    return run_rows(folder, MatchedRows.of(SIDE))


def build_file(folder: Path) -> Path:
    for name in ("build", "buildx"):
        with (folder / name).open("wb") as stream:
            write_build_file(ROWS, stream)
    return folder / "build"


def streamed(folder: Path) -> StreamedBroadcast:
    for number in (7, 8):
        path = folder / f"broadcast_{number}"
        with path.open("wb") as sink, pa.ipc.new_stream(sink, ROWS.schema) as stream:
            stream.write_table(ROWS)
        _broadcastRegistry[number] = SimpleNamespace(_path=str(path))  # type: ignore[assignment]
    return StreamedBroadcast(7, ROWS.schema, 1)


def bytes_of(folder: Path) -> BroadcastBytes:
    return BroadcastBytes("one", SimpleNamespace(value=build_file(folder).read_bytes()))


SAMPLES: dict[type, list[Callable[[Path], Any]]] = {
    IndexRecipe: [lambda folder: replace(RECIPE, bounds=((1, pa.int64()),))],
    ScannedFiles: [scanned],
    DerivedRows: [pipelined],
    ReducedRows: [reduced],
    RunRows: [run_rows, nearest, in_a_bucket, matched],
    IndexedSource: [lambda folder: IndexedSource(scanned(folder), RECIPE)],
    BroadcastFile: [lambda folder: BroadcastFile(SimpleNamespace(_path=str(build_file(folder))))],
    StreamedBroadcast: [streamed],
    ArtifactFile: [lambda folder: ArtifactFile(build_file(folder).name)],
    BroadcastBytes: [bytes_of],
}


# --- changed values of a field ---


def other_parts(parts: tuple[tuple[Split, ...], ...]) -> list[Any]:
    """Return the same files with other partitions, and another file."""
    splits = sorted((split for part in parts for split in part), key=lambda split: split.start)
    other = replace(splits[0], path=f"{splits[0].path}x", length=WHOLE)
    return [(tuple(splits),), tuple((split,) for split in splits), ((other,),)]


def other_places(rows: pa.Table) -> list[Any]:
    """Return the same rows in a segment."""
    place = LocalLocation(Path(sparkext.storage.local_folder.local_folder()) / "0.segment")
    info = write_segment(place, rows.schema, rows.to_batches(), lambda: StoredSide(rows.schema).info(rows))
    return [(StoredSegment(place, info, True),)]


def others_of(value: Any) -> Callable[[Any], list[Any]]:
    return lambda _: [value]


COLUMN = Expression("column", INT)
TEST = condition("<", COLUMN, literal("1", INT))
OTHERS: dict[tuple[type, str], Callable[[Any], list[Any]]] = {
    (DerivedRows, "parts"): other_parts,
    (ReducedRows, "parts"): other_parts,
    (RunRows, "rows"): other_places,
    (Settings, "memory_fraction"): others_of(0.25),
    (Settings, "morsel_min_rows"): others_of(1),
    (Settings, "morsel_max_bytes"): others_of(100),
    (StreamedBroadcast, "broadcast_id"): others_of(8),
    (BroadcastFile, "broadcast"): lambda broadcast: [SimpleNamespace(_path=broadcast._path)],
    (BroadcastBytes, "broadcast"): lambda broadcast: [SimpleNamespace(value=bytes(broadcast.value))],
    (StoredSide, "order"): lambda order: [NearestOrder(2, 1, None, (0,), True), *_deeper(order)],
    (KeyPair, "probe"): lambda probe: [ColumnRef(0, 0, ColumnRef(0, 1), "int64"), *_deeper(probe)],
    (NearestOrder, "ties"): others_of(None),
    (Bucket, "endpoint"): others_of("host"),
    (Bucket, "region"): others_of("eu-west-1"),
    (Bucket, "access_key"): others_of("key"),
    (Bucket, "secret_key"): others_of("key"),
    (Bucket, "session_token"): others_of("key"),
    (ParquetScan, "bounds"): others_of((ProbeBounds(0, ()),)),
    (ParquetScan, "buckets"): others_of((Bucket("shelf", endpoint="host"),)),
    (ParquetScan, "metrics"): others_of(ScanMetrics(1)),
    (ParquetScan, "opened"): others_of({"elsewhere": (1,)}),
    (ParquetScan, "unchecked"): others_of({"elsewhere"}),
    (ParquetScan, "text_bytes"): others_of({0: 7.0}),
    (ParquetScan, "calendars"): others_of(Calendars(False, True)),
    (ScanSpec, "filter"): lambda test: [None if test else TEST],
    (ScanColumn, "partition"): others_of(0),
    (ScanColumn, "stored"): others_of("other"),
    (Projection, "filter"): lambda test: [None, *_deeper(test)],
    (Expression, "op"): lambda op: {"+": ["-"], "<": ["<="], "column": ["literal"], "literal": ["column"]}[op],
    (Expression, "type"): others_of(KeyType("int32")),
    (Expression, "text"): others_of("8"),
    (Expression, "texts"): others_of(("8",)),
    (Expression, "args"): lambda args: [(*args[:-1], Expression("column", INT, column=7))],
    (KeyPair, "type"): others_of("int32"),
    (ColumnRef, "otherwise"): others_of(ColumnRef(0, 1)),
    (ColumnRef, "type"): others_of("int64"),
    (JoinSpec, "how"): others_of("left"),
    (JoinSpec, "algorithm"): others_of("hash"),
    (JoinSpec, "condition"): others_of(TEST),
    (JoinSpec, "ranges"): others_of((RangePair(ColumnRef(0, 1), "<", 1, "int64"),)),
    (JoinSpec, "theta"): others_of(TEST),
    (JoinSpec, "guard"): others_of(TEST),
    (JoinSpec, "as_of"): others_of(AsOf(ColumnRef(0, 1), 1, "int64", "backward")),
    (PipelineSpec, "owned_by"): others_of(1),
    (PipelineSpec, "filter"): others_of(TEST),
    (PipelineSpec, "aggregations"): others_of((Aggregation((COLUMN,), (AggregateCall("count", None),), whole=True),)),
    (PipelineSpec, "top"): others_of(Top(1, (OrderColumn(0, True, True),))),
}
"""Changed values of fields for which the type does not determine them."""


def changes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield copies of a dataclass with one field changed, for each change, with the path of field names."""
    for field in fields(value):
        kind, now = type(value), getattr(value, field.name)
        decided = next((OTHERS[one, field.name] for one in kind.__mro__ if (one, field.name) in OTHERS), None)
        if isinstance(value, Settings) and decided is None:
            options = [*get_args(get_type_hints(Settings)[field.name])] or _deeper(now)
            found = [option for option in options if option != now]
        else:
            found = _deeper(now) if decided is None else decided(now)
        assert found, f"no other value of {kind.__name__}.{field.name}"
        for other in found:
            try:
                yield f"{kind.__name__}.{field.name}", replace(value, **{field.name: other})
            except ValueError:
                assert hasattr(kind, "__post_init__"), "it refuses fields that do not go together"


def _deeper(now: Any) -> list[Any]:
    """Return other values of the same type."""
    if isinstance(now, bool):
        return [not now]
    if isinstance(now, (int, float)):
        return [now + 1]
    if isinstance(now, str):
        return [f"{now}x"]
    if isinstance(now, Path):
        return [now / "x"]
    if isinstance(now, range):
        return [range(now.start, now.stop + 1), range(now.start + 1, now.stop)]
    if isinstance(now, pa.DataType):
        return [pa.int32()]
    if isinstance(now, pa.Schema):
        first = now.field(0)
        return [now.set(0, first.with_name("x")), now.set(0, first.with_nullable(not first.nullable)), now.remove(0)]
    if isinstance(now, tuple):
        longer = [(*now, *now[-1:])] if now else [(1,)]
        return [*longer, now[1:], *((other, *now[1:]) for other in _deeper(now[0]))] if now else longer
    if is_dataclass(now):
        return [other for _, other in changes(now)]
    if now is None:
        return [1]
    raise AssertionError(f"no other value of {now!r}: add it to OTHERS, or cover its type")


# --- properties ---


@dataclass(frozen=True)
class Content:
    """Rows and their index, byte by byte."""

    rows: list[Any]
    arrays: dict[str, bytes]
    columns: dict[int, list[Any]]
    attributes: Any

    @classmethod
    def of(cls, source: Any) -> Content:
        _, columns = source.columns()
        side = source.open() if isinstance(source, IndexedSource) else source.open(RECIPE)
        kept = {number: column.array.to_pylist() for number, column in side.columns.items()}
        arrays = {name: array.tobytes() for name, array in side.index.arrays.items()}
        return cls([column.to_pylist() for column in columns], arrays, kept, side.index.attributes)


PACKAGES = (
    "asof",
    "build_sides",
    "engine",
    "joins",
    "parquet",
    "partitioned",
    "predicates",
    "rows",
    "scans",
    "shuffle",
    "storage",
    "streaming",
)


def identities() -> set[type]:
    """Return all dataclasses of the package that identify cached data."""
    found: set[type] = set()
    root = Path(sparkext.__file__).parent
    for path in (path for package in PACKAGES for path in (root / package).rglob("*.py")):
        module = importlib.import_module(".".join(("sparkext", *path.relative_to(root).with_suffix("").parts)))
        members = [one for one in vars(module).values() if isinstance(one, type)]
        found.update(one for one in members if is_dataclass(one) and hasattr(one, "digest"))
    return found


def test_all_identities_have_a_sample() -> None:
    assert identities() == set(SAMPLES)
    for one in identities():
        if issubclass(one, CachedRows):
            assert one.NOT_IN_FINGERPRINT.keys() >= CachedRows.NOT_IN_FINGERPRINT.keys()


def digest_of(identity: Any) -> str:
    return str(identity.digest if isinstance(identity, IndexRecipe) else identity.digest())


@pytest.mark.parametrize(
    "sample", [pytest.param(make, id=f"{one.__name__} {n}") for one in SAMPLES for n, make in enumerate(SAMPLES[one])]
)
def test_each_field_counts_or_changes_nothing(
    sample: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = sample(tmp_path)
    name, excluded = digest_of(identity), getattr(identity, "NOT_IN_FINGERPRINT", {})
    assert digest_of(replace(identity)) == name, "it names the same"
    assert {*list_covered_fields(identity), *excluded} == {field.name for field in fields(identity)}
    assert all(excluded.values()), "each with its reason"
    expected, same = None, 0
    for number, (field, other) in enumerate(changes(identity)):
        if digest_of(other) != name:
            continue
        assert not isinstance(identity, IndexRecipe), f"{field}: {other}"
        if expected is None:
            expected = Content.of(identity)
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / str(number)))
        (tmp_path / str(number)).mkdir()
        assert Content.of(other) == expected, f"{field}: {other} is taken for {identity}"
        same += 1
    assert same >= len(excluded), "what is excluded was looked at"


def test_a_field_that_nobody_has_decided_on_counts() -> None:
    @dataclass(frozen=True)
    class Old:
        kept: int = 1

    @dataclass(frozen=True)
    class New(Old):
        more: int = 2

    assert fingerprint_of(New()) != fingerprint_of(New(more=3)) and fingerprint_of(New()) != fingerprint_of(Old())
    with pytest.raises(TypeError, match="no fingerprint covers object"):
        fingerprint_of(New(more=object()))  # type: ignore[arg-type]
    assert json.dumps(fingerprint_of(Old(), {"a": (1,)})) != json.dumps(fingerprint_of(Old(), {"a": (2,)}))
