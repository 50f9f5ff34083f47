"""The configuration keys: one typed registry, the source of settings, error messages and the documentation's table.

Every key has the prefix `spark.sparkext.` and is read from Spark's configuration, in which all values are strings. A
call may override any key by its full name. The same parser reads both. An invalid value in a call raises an error. An
invalid text in Spark's configuration never fails a query: the key's replacement, in most cases its default, is used
instead.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args

from sparkext.errors import ConfigError
from sparkext.wording import format_markdown_table

T = TypeVar("T")

PREFIX = "spark.sparkext."
_INTERNAL = PREFIX + "debug."

AlgorithmName = Literal["auto", "hash", "sort_merge"]
ModeName = Literal["auto", "hint", "off"]
JoinOrderName = Literal["measured", "query", "random"]
PartitionedName = Literal["auto", "always", "never"]
StagesName = Literal["waves", "pipelined"]
GroupsName = Literal["auto", "parts", "whole"]

PartitionsName = Literal["planned", "hash", "random"]

_BYTE_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_BYTE_SIZE = re.compile(r"(\d+)\s*(?:([kmgtp])b?|b)?", re.IGNORECASE | re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def parse_bytes(text: str) -> int:
    """Return the bytes of a size in Spark's notation: `4g`, `512m`, `64kb`, or a plain number of bytes.

    As in Spark, units are powers of 1024, case is ignored, and fractions such as `1.5g` are refused.

    Raises
    ------
    ValueError
        The text is no such size.
    """
    match = _BYTE_SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a byte size: {text!r}")
    return int(match[1]) * _BYTE_UNITS[(match[2] or "b").lower()]


def render_bytes(size: int) -> str:
    """Return the shortest exact spelling of a byte size that `parse_bytes` reads back."""
    for unit in reversed(_BYTE_UNITS):
        if unit != "b" and size and size % _BYTE_UNITS[unit] == 0:
            return f"{size // _BYTE_UNITS[unit]}{unit}"
    return str(size)


def parse_boolean(text: str) -> bool:
    """Read `true` or `false` in any case, the only spellings that Spark accepts. Raises `ValueError` for others."""
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise ValueError(f"not a boolean: {text!r}") from None


@dataclass(frozen=True)
class ValueType(Generic[T]):
    """The type of an option: `parse` reads a value from a configuration string, `render` writes it for users.

    `parse` raises `ValueError` for a text that is not of the type. The key checks ranges and choices.
    """

    name: str
    parse: Callable[[str], T]
    render: Callable[[T], str] = str


INTEGER = ValueType("integer", int)
NUMBER = ValueType("number", float)
BYTE_SIZE = ValueType("byte size", parse_bytes, render_bytes)
BOOLEAN = ValueType("boolean", parse_boolean, lambda value: str(value).lower())
BIT_MASK = ValueType("bit mask", lambda text: int(text, base=0), hex)
TEXT = ValueType("text", str)


@dataclass(frozen=True)
class ConfigKey(Generic[T]):
    """One key: its full name, its attribute in `Settings`, its type, and the values that it accepts.

    `expected` completes the sentence "expected …" for users; `choices`, `least` and `most` are the same rule in a form
    that programs check. Choices are recognised in any case. `if_unreadable` replaces a configured text that breaks the
    rule; None stands for the default. `of_application`: the key affects other sessions, so only the application may set
    it, unless the application sets `DEBUG_SESSIONS`. The jar contains these fields, for Scala.
    """

    name: str
    attribute: str
    type: ValueType[T]
    unit: str
    default: T
    doc: str
    expected: str
    choices: tuple[T, ...] = ()
    least: float | None = None
    most: float | None = None
    if_unreadable: T | None = None
    of_application: bool = False

    @property
    def is_internal(self) -> bool:
        """Whether the key is for the project's own tests and measurements. The table for users leaves it out."""
        return self.name.startswith(_INTERNAL)

    @property
    def replacement(self) -> T:
        """The value that replaces a configured text that cannot be read."""
        return self.default if self.if_unreadable is None else self.if_unreadable

    def read_configured(self, text: str | None) -> tuple[T, str | None]:
        """Return the value of a configured text, which is None if unset, and the problem if it cannot be read."""
        if text is None:
            return self.default, None
        try:
            return self.read(text), None
        except ConfigError as error:
            return self.replacement, f"{error}; {self.type.render(self.replacement)} is used"

    def read(self, raw: object) -> T:
        """Return the typed value of `raw`, a configuration string or a Python value that prints like one.

        Raises
        ------
        ConfigError
            The value is not of the type, or is out of range.
        """
        text = str(raw).strip()
        try:
            value = self.type.parse(text.lower() if self.choices else text)
        except ValueError:
            raise self._refusal(raw) from None
        if not self._accepts(value):
            raise self._refusal(raw)
        return value

    def _accepts(self, value: Any) -> bool:
        """Return whether a value is one of the choices, if there are any, and within the bounds. NaN never is."""
        if self.choices and value not in self.choices:
            return False
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def _refusal(self, raw: object) -> ConfigError:
        return ConfigError(f"{self.name}: got {raw!r}, expected {self.expected}")


MODE = ConfigKey(
    name=PREFIX + "mode",
    attribute="mode",
    type=TEXT,
    unit="",
    default="auto",
    doc="Which joins the session extension plans as pipelines: `auto` (hinted joins, and joins that are cheaper by"
    " the estimates), `hint` (hinted joins only) or `off`. If an engine such as Comet, Gluten, RAPIDS, Auron or Blaze"
    " replaces Spark's operators by native operators, `auto` plans hinted joins only.",
    expected="one of auto, hint, off",
    choices=get_args(ModeName),
    if_unreadable="off",
)
EXPLAIN_FALLBACK = ConfigKey(
    name=PREFIX + "explainFallback",
    attribute="explain_fallback",
    type=BOOLEAN,
    unit="",
    default=False,
    doc="Whether the session extension logs every join that it leaves to Spark, with the reason.",
    expected="true or false",
)
PYTHON = ConfigKey(
    name=PREFIX + "python",
    attribute="python",
    type=TEXT,
    unit="",
    default="",
    doc="The Python that runs the session extension's pipelines, on the driver and on every node, and the functions"
    " of transforms and stream operators (not through Connect). If empty, the application's"
    " `spark.sql.execution.pyspark.python`, else `spark.pyspark.python`, else the environment's PYSPARK_PYTHON, else"
    " `python3`; `sparkext.configure`, the transforms and the stream operators use the driver's own Python instead"
    " of `python3` if the master is local. The driver starts it for planning: set it when the application starts;"
    " sessions cannot.",
    expected="the name or path of an executable",
    of_application=True,
)
BUILD_SIDE_MAX_BYTES = ConfigKey(
    name=PREFIX + "buildSide.maxBytes",
    attribute="build_side_max_bytes",
    type=BYTE_SIZE,
    unit="bytes",
    default=4 << 30,
    doc="A build side whose Arrow form is larger is not copied to every node. If Spark's estimate is larger, the"
    " session extension partitions the join (`spark.sparkext.partitioned`), or leaves it to Spark if that is"
    " impossible. If only the computed build side is larger, Spark's own joins run instead. A transform without the"
    " extension partitions the join, or raises an error if that is impossible.",
    expected="a byte size of at least 1, such as 512m or 4g",
    least=1,
)
PARTITIONED = ConfigKey(
    name=PREFIX + "partitioned",
    attribute="partitioned",
    type=TEXT,
    unit="",
    default="auto",
    doc="Whether both sides of a join are sent to partitions, so that no node holds all of the build side: `auto` (if"
    " the build side is larger than `spark.sparkext.buildSide.maxBytes`, and for full outer joins that the extension"
    " plans), `always` or `never`. As-of joins cannot be partitioned.",
    expected="one of auto, always, never",
    choices=get_args(PartitionedName),
)
PARTITIONED_STAGES = ConfigKey(
    name=PREFIX + "partitioned.stages",
    attribute="partitioned_stages",
    type=TEXT,
    unit="",
    default="waves",
    doc="When the partitions of a partitioned join run: `waves` (after all rows of both sides are sent; buckets are"
    " assigned to partitions by the sizes of all buckets), or `pipelined` (while the rows of the probe side are sent,"
    " which are never stored on disk; buckets move meanwhile). `pipelined` needs Spark 4.3, and a job without other"
    " shuffles.",
    expected="one of waves, pipelined",
    choices=get_args(StagesName),
)
STREAMS_UNIT_MAX_BYTES = ConfigKey(
    name=PREFIX + "streams.unitMaxBytes",
    attribute="streams_unit_max_bytes",
    type=BYTE_SIZE,
    unit="bytes",
    default=4 << 30,
    doc="Maximum size of the rows of both sides in one unit of a join of streams without an equality, as Arrow"
    " batches: the sides are divided into as few fragments as possible.",
    expected="a byte size of at least 1, such as 512m or 4g",
    least=1,
)
SCAN_FUSED = ConfigKey(
    name=PREFIX + "scan.fused",
    attribute="scan_fused",
    type=BOOLEAN,
    unit="",
    default=True,
    doc="Whether workers of the session extension read Parquet files themselves if they read the same rows as Spark;"
    " EXPLAIN shows the reason if they do not.",
    expected="true or false",
)
INDEX_CACHE_MAX_BYTES = ConfigKey(
    name=PREFIX + "indexCache.maxBytes",
    attribute="index_cache_max_bytes",
    type=BYTE_SIZE,
    unit="bytes",
    default=16 << 30,
    doc="Local disk that each executor may use to keep build sides read from Parquet files, and their indexes, for"
    " later queries of the application. The least recently used are evicted first. Set it when the application"
    " starts; sessions cannot.",
    expected="a byte size, such as 512m or 16g; 0 caches only the build sides of the latest query",
    least=0,
    of_application=True,
)
MORSEL_MAX_ROWS = ConfigKey(
    name=PREFIX + "morsel.maxRows",
    attribute="morsel_max_rows",
    type=INTEGER,
    unit="rows",
    default=131_072,
    doc="Maximum of every output budget. Smaller input batches are coalesced up to this number of rows, larger input"
    " batches are split.",
    expected="an integer of at least 1",
    least=1,
)
MORSEL_MAX_BYTES = ConfigKey(
    name=PREFIX + "morsel.maxBytes",
    attribute="morsel_max_bytes",
    type=BYTE_SIZE,
    unit="bytes",
    default=64 << 20,
    doc="Maximum size of an operator's output, except for a single row that is larger.",
    expected="a byte size from 1 to 1g",
    least=1,
    most=1 << 30,
)
MORSEL_MIN_ROWS = ConfigKey(
    name=PREFIX + "morsel.minRows",
    attribute="morsel_min_rows",
    type=INTEGER,
    unit="rows",
    default=1_024,
    doc="Minimum of every output budget, so that a join advances. If this number of rows is larger than a mebibyte, the"
    " minimum is the number of rows that fit in a mebibyte, but at least 1. At most `spark.sparkext.morsel.maxRows`.",
    expected="an integer of at least 1",
    least=1,
)
MEMORY_FRACTION = ConfigKey(
    name=PREFIX + "memory.fraction",
    attribute="memory_fraction",
    type=NUMBER,
    unit="share",
    default=0.5,
    doc="Share of the measured memory headroom that pipelines may plan with.",
    expected="a number above 0 and at most 1",
    least=math.ulp(0.0),  # the smallest number above 0
    most=1.0,
)
MEMORY_MAX_BYTES = ConfigKey(
    name=PREFIX + "memory.maxBytes",
    attribute="memory_max_bytes",
    type=BYTE_SIZE,
    unit="bytes",
    default=0,
    doc="Maximum memory, without mapped files, that a worker process plans to use, even if more is free; 0 for no"
    " limit.",
    expected="a byte size, such as 512m or 2g; 0 for no limit",
    least=0,
)
ALGORITHM = ConfigKey(
    name=PREFIX + "algorithm",
    attribute="algorithm",
    type=TEXT,
    unit="",
    default="auto",
    doc="Join algorithm of calls that do not name an algorithm: `auto`, `hash` or `sort_merge`.",
    expected="one of auto, hash, sort_merge",
    choices=get_args(AlgorithmName),
)
REPORT_DECISIONS = ConfigKey(
    name=PREFIX + "report.decisions",
    attribute="report_decisions",
    type=INTEGER,
    unit="decisions",
    default=256,
    doc="Maximum number of budget decisions that a task stores for the report.",
    expected="an integer of at least 0",
    least=0,
)
PROGRESS = ConfigKey(
    name=PREFIX + "progress",
    attribute="progress",
    type=BOOLEAN,
    unit="",
    default=True,
    doc="Whether a driver that collects or publishes a build side for more than two seconds shows a progress bar, in"
    " notebooks and on terminals, if tqdm is installed.",
    expected="true or false",
)
DEBUG_JOIN_ORDER = ConfigKey(
    name=PREFIX + "debug.joinOrder",
    attribute="debug_join_order",
    type=TEXT,
    unit="",
    default="measured",
    doc="The order in which a task runs the joins of a pipeline: `measured` (the cheapest order, by the output of each"
    " join for a sample of the first rows), `query` (the order of the plan, with complete build sides) or `random` (any"
    " possible order, with semi-join reductions of the build sides from the start). Only for tests and measurements.",
    expected="one of measured, query, random",
    choices=get_args(JoinOrderName),
    of_application=True,
)
DEBUG_GROUPS = ConfigKey(
    name=PREFIX + "debug.groups",
    attribute="debug_groups",
    type=TEXT,
    unit="",
    default="auto",
    doc="Whether workers or Spark finish groups above joins and scans: `auto` (workers, if there are many groups and"
    " all tasks run on one node, otherwise Spark), `parts` (Spark, from partial groups) or `whole` (workers, if"
    " possible). Only for tests and measurements.",
    expected="one of auto, parts, whole",
    choices=get_args(GroupsName),
    of_application=True,
)
DEBUG_PARTITIONS = ConfigKey(
    name=PREFIX + "debug.partitions",
    attribute="debug_partitions",
    type=TEXT,
    unit="",
    default="planned",
    doc="How the buckets of a partitioned join are assigned to partitions: `planned` (by the load balancer), `hash` (by"
    " their hash alone) or `random` (many of them split). Only for tests and measurements.",
    expected="one of planned, hash, random",
    choices=get_args(PartitionsName),
    of_application=True,
)
DEBUG_HASH_MASK = ConfigKey(
    name=PREFIX + "debug.hashMask",
    attribute="debug_hash_mask",
    type=BIT_MASK,
    unit="",
    default=(1 << 64) - 1,
    doc="Mask applied to every hash (AND); 0 makes all hashes collide. Only for tests.",
    expected="an integer from 0 to 0xffffffffffffffff, decimal or hexadecimal",
    least=0,
    most=(1 << 64) - 1,
    of_application=True,
)
CQL_MAX_INSTANTS = ConfigKey(
    name=PREFIX + "cql.maxInstants",
    attribute="cql_max_instants",
    type=INTEGER,
    unit="instants",
    default=100_000,
    doc="Maximum number of instants of a timestamp, each an ε after the previous instant, and of rounds of a recursive"
    " query. At this limit continuous queries fail, because a cycle whose results never stop changing would run for"
    " ever.",
    expected="an integer of at least 1",
    least=1,
)
DEBUG_FORCE = ConfigKey(
    name=PREFIX + "debug.force",
    attribute="debug_force",
    type=BOOLEAN,
    unit="",
    default=False,
    doc="Whether the extension plans every join that it supports as a pipeline, regardless of hints and estimates, in"
    " modes `auto` and `hint`. Only for tests.",
    expected="true or false",
    of_application=True,
)
DEBUG_SESSIONS = ConfigKey(
    name=PREFIX + "debug.sessions",
    attribute="debug_sessions",
    type=BOOLEAN,
    unit="",
    default=False,
    doc="Whether sessions may set `spark.sparkext.indexCache.maxBytes` and `spark.sparkext.debug.*`, which only the"
    " application may set otherwise. Only for tests and measurements.",
    expected="true or false",
    of_application=True,
)

REGISTRY: tuple[ConfigKey[Any], ...] = (
    MODE,
    EXPLAIN_FALLBACK,
    PYTHON,
    BUILD_SIDE_MAX_BYTES,
    PARTITIONED,
    PARTITIONED_STAGES,
    STREAMS_UNIT_MAX_BYTES,
    CQL_MAX_INSTANTS,
    SCAN_FUSED,
    INDEX_CACHE_MAX_BYTES,
    MORSEL_MAX_ROWS,
    MORSEL_MAX_BYTES,
    MORSEL_MIN_ROWS,
    MEMORY_FRACTION,
    MEMORY_MAX_BYTES,
    ALGORITHM,
    REPORT_DECISIONS,
    PROGRESS,
    DEBUG_SESSIONS,
    DEBUG_FORCE,
    DEBUG_JOIN_ORDER,
    DEBUG_GROUPS,
    DEBUG_PARTITIONS,
    DEBUG_HASH_MASK,
)
"""All keys, in the order of the documentation's table."""


@dataclass(frozen=True)
class Settings:
    """The values of all keys, typed and validated. `read_settings` creates them; `REGISTRY` documents them."""

    mode: ModeName
    explain_fallback: bool
    python: str
    build_side_max_bytes: int
    partitioned: PartitionedName
    partitioned_stages: StagesName
    streams_unit_max_bytes: int
    cql_max_instants: int
    scan_fused: bool
    index_cache_max_bytes: int
    morsel_max_rows: int
    morsel_max_bytes: int
    morsel_min_rows: int
    memory_fraction: float
    memory_max_bytes: int
    algorithm: AlgorithmName
    report_decisions: int
    progress: bool
    debug_sessions: bool
    debug_force: bool
    debug_join_order: JoinOrderName
    debug_groups: GroupsName
    debug_partitions: PartitionsName
    debug_hash_mask: int


def read_settings(get: Callable[[str], str | None], overrides: Mapping[str, object]) -> Settings:
    """Return the settings of Spark's configuration, overridden by the options of one call.

    `get` maps a full key name to its configured string, None if unset; `find_configuration_problems` reports strings
    that cannot be read. `overrides` maps full key names to strings or Python values, and takes precedence. A
    `morsel.minRows` above `morsel.maxRows` is lowered to `morsel.maxRows`, or is an error if it is an override.

    Raises
    ------
    ConfigError
        Lists every problem of the overrides.
    """
    settings, _ = _read(get, overrides)
    return settings


def find_configuration_problems(configured: Mapping[str, str]) -> list[str]:
    """Return the problems of a configuration's `spark.sparkext.*` keys: unknown keys, and texts that cannot be read."""
    _, problems = _read(configured.get, {})
    return [*map(_describe_unknown, _find_unknown_names(configured)), *problems]


def _read(get: Callable[[str], str | None], overrides: Mapping[str, object]) -> tuple[Settings, list[str]]:
    """Return the settings, and the problems of the configuration. Raises `ConfigError` for problems of `overrides`."""
    problems = [_describe_unknown(name) for name in _find_unknown_names(overrides)]
    values: dict[str, Any] = {}
    replaced: dict[str, str] = {}
    for key in REGISTRY:
        if key.name not in overrides:
            values[key.attribute], unreadable = key.read_configured(get(key.name))
            if unreadable is not None:
                replaced[key.name] = unreadable
            continue
        try:
            values[key.attribute] = key.read(overrides[key.name])
        except ConfigError as error:
            problems.append(str(error))
    if not problems:
        lowest, highest = values[MORSEL_MIN_ROWS.attribute], values[MORSEL_MAX_ROWS.attribute]
        if lowest > highest:
            values[MORSEL_MIN_ROWS.attribute] = highest
            contradiction = f"got {lowest}, expected at most {MORSEL_MAX_ROWS.name}, which is {highest}"
            if MORSEL_MIN_ROWS.name in overrides:
                problems.append(f"{MORSEL_MIN_ROWS.name}: {contradiction}")
            elif get(MORSEL_MIN_ROWS.name) is not None:
                replaced.setdefault(MORSEL_MIN_ROWS.name, f"{MORSEL_MIN_ROWS.name}: {contradiction}; {highest} is used")
    if problems:
        raise ConfigError("\n".join(problems))
    return Settings(**values), list(replaced.values())


def _find_unknown_names(given: Iterable[str]) -> list[str]:
    known = {key.name for key in REGISTRY}
    return [name for name in given if name not in known]


def _describe_unknown(name: str) -> str:
    """Return the problem of an unknown name, with the key whose full, short or attribute name is nearest."""
    spellings = {
        spelling.lower(): key.name
        for key in REGISTRY
        for spelling in (key.attribute, key.name.removeprefix(PREFIX), key.name)
    }
    nearest = difflib.get_close_matches(name.lower(), spellings, n=1)
    if nearest:
        return f"{name}: unknown key, did you mean {spellings[nearest[0]]}?"
    return f"{name}: unknown key, available: {', '.join(key.name for key in REGISTRY)}"


def render_markdown_table() -> str:
    """Return the Markdown table of `docs/options.md`: a row per key for users, without a trailing newline."""
    rows = []
    for key in (key for key in REGISTRY if not key.is_internal):
        default = key.type.render(key.default)
        rows.append((f"`{key.name}`", key.type.name, key.unit, f"`{default}`" if default else "", key.doc))
    return format_markdown_table(("key", "type", "unit", "default", "meaning"), rows)
