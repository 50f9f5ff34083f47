"""The memory probe on invented /proc and cgroup trees, and once on the real machine. Uses no Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkext.memory import probes
from sparkext.memory.probes import Headroom, MemoryProbe

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
V1_UNLIMITED = "9223372036854771712"


class Machine:
    """An invented machine: 8 GiB are available, and nothing is limited until a test sets a limit."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.cgroup = root / "cgroup"
        self.now = 0.0
        self.probes: list[MemoryProbe] = []
        self.write("proc/meminfo", f"MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable: {8 * 1024 * 1024} kB\n")
        self.address_space: int | None = None
        self.write("proc/self/statm", f"{100 * MIB // PAGE} 435 407 5 0 123 0\n")
        self.cgroup.mkdir()

    def write(self, path: str, text: str) -> None:
        file = self.proc.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def v2(self, path: str, maximum: object, current: int, stat: str = "anon 1\n", high: object = "max") -> None:
        for name, value in {
            "memory.max": maximum,
            "memory.high": high,
            "memory.current": current,
            "memory.stat": stat.rstrip("\n"),
        }.items():
            self.write(f"cgroup/{path}/{name}", f"{value}\n")

    def v1(self, path: str, limit: object, usage: int, stat: str = "cache 1\n", hierarchy: int = 1) -> None:
        for name, value in {
            "memory.limit_in_bytes": limit,
            "memory.usage_in_bytes": usage,
            "memory.use_hierarchy": hierarchy,
            "memory.stat": stat.rstrip("\n"),
        }.items():
            self.write(f"cgroup/memory/{path}/{name}", f"{value}\n")

    def member_of(self, *lines: str) -> None:
        self.write("proc/self/cgroup", "".join(f"{line}\n" for line in lines))

    def probe(self) -> MemoryProbe:
        self.probes.append(MemoryProbe(self.proc, self.cgroup, lambda: self.now, lambda: self.address_space))
        return self.probes[-1]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made_up = Machine(tmp_path)
    yield made_up
    for probe in made_up.probes:
        probe.close()


def test_available_memory_is_the_bound_where_nothing_else_is(machine: Machine) -> None:
    assert machine.probe().headroom() == Headroom(8 << 30, "available")


def test_nothing_readable_means_unknown(tmp_path: Path) -> None:
    probe = MemoryProbe(tmp_path / "no-proc", tmp_path / "no-cgroup")
    assert probe.headroom() is None
    assert probe.describe()[-1] == ("headroom", "unknown")
    probe.close()


V2_STAT = (
    "anon 12345\nfile 999999999\nfile_mapped 7\nfile_dirty {dirty}\nfile_writeback {writeback}\n"
    "inactive_anon 5\nactive_anon 5\ninactive_file {inactive}\nactive_file {active}\nunevictable 0\n"
)
V1_STAT = (
    "cache 1\ndirty 77\nwriteback 77\ninactive_file 77\nactive_file 77\nhierarchical_memory_limit 1\n"
    "total_cache 1\ntotal_dirty {dirty}\ntotal_writeback {writeback}\ntotal_inactive_anon 5\n"
    "total_inactive_file {inactive}\ntotal_active_file {active}\ntotal_unevictable 0\n"
)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("usage", "inactive", "active", "dirty", "writeback", "free"),
    [
        (400, 0, 0, 0, 0, 600),
        (400, 100, 0, 0, 0, 700),
        (400, 100, 50, 0, 0, 750),
        (400, 100, 50, 30, 20, 700),
        # More unwritten pages than on the lists (counters lag), more reclaimable than used memory, and use above the
        # limit.
        (400, 10, 10, 300, 0, 600),
        (400, 500, 100, 0, 0, 1000),
        (1100, 0, 0, 0, 0, 0),
        (1100, 50, 0, 0, 0, 0),
        (1100, 200, 0, 0, 0, 100),
    ],
)
def test_reclaimable_file_pages_are_not_used_up(
    machine: Machine,
    version: int,
    usage: int,
    inactive: int,
    active: int,
    dirty: int,
    writeback: int,
    free: int,
) -> None:
    pages = {"inactive": inactive, "active": active, "dirty": dirty, "writeback": writeback}
    pages = {name: count * MIB for name, count in pages.items()}
    if version == 1:
        machine.member_of("4:memory:/job", "0::/")
        machine.v1("job", 1000 * MIB, usage * MIB, V1_STAT.format(**pages))
    else:
        machine.member_of("0::/job")
        machine.v2("job", 1000 * MIB, usage * MIB, V2_STAT.format(**pages))
    assert machine.probe().headroom() == Headroom(free * MIB, "cgroup")


def test_a_field_may_be_the_first_of_its_file(machine: Machine) -> None:
    machine.member_of("0::/job")
    machine.v2("job", 1000, 400, "active_file 100\n")
    assert machine.probe().headroom() == Headroom(700, "cgroup")


@pytest.mark.parametrize(
    ("levels", "free"),
    [
        # Limits and usage of /, /outer, /outer/inner.
        ([("max", 0), ("max", 0), (1000, 400)], 600),
        ([("max", 0), (1000, 800), (1000, 400)], 200),
        ([(1000, 950), (1000, 800), (1000, 400)], 50),
        ([("max", 0), (1000, 800), ("max", 400)], 200),
    ],
)
def test_every_ancestor_of_version_2_counts(machine: Machine, levels: list[tuple[object, int]], free: int) -> None:
    machine.member_of("0::/outer/inner")
    for path, (limit, usage) in zip(["", "outer", "outer/inner"], levels, strict=True):
        machine.v2(path, limit, usage)
    assert machine.probe().headroom() == Headroom(free, "cgroup")


@pytest.mark.parametrize(("hierarchy", "free"), [(1, 200), (0, 600)])
def test_ancestors_of_version_1_count_if_they_are_hierarchical(machine: Machine, hierarchy: int, free: int) -> None:
    machine.member_of("9:name=systemd:/", "4:cpu,memory:/outer/inner", "0::/elsewhere")
    machine.v1("", V1_UNLIMITED, 0)
    machine.v1("outer", 1000, 800, hierarchy=hierarchy)
    machine.v1("outer/inner", 1000, 400)
    assert machine.probe().headroom() == Headroom(free, "cgroup")


def test_the_throttling_limit_counts_like_the_hard_one(machine: Machine) -> None:
    machine.member_of("0::/job")
    machine.v2("job", 1000, 400, high=700)
    assert machine.probe().headroom() == Headroom(300, "cgroup")


@pytest.mark.parametrize(
    "lines",
    [("0::/job",), ("4:memory:/job",), ("4:memory:/job", "0::/job")],
    ids=["v2", "v1", "hybrid"],
)
def test_groups_without_a_limit_do_not_bind(machine: Machine, lines: tuple[str, ...]) -> None:
    machine.member_of(*lines)
    machine.v2("job", "max", 10**15)
    machine.v1("job", V1_UNLIMITED, 10**15)
    assert machine.probe().headroom() == Headroom(8 << 30, "available")
    machine.write("proc/meminfo", "")
    assert machine.probe().headroom() is None


@pytest.mark.parametrize(
    ("path", "mount_root"),
    [
        ("/", None),
        ("/docker/0123abc", None),
        ("/docker/0123abc", "/docker/0123abc"),
        ("/../sibling", None),
        ("/../..", "/"),
    ],
)
def test_a_group_that_is_not_visible_falls_back_to_the_root_of_the_mount(
    machine: Machine, path: str, mount_root: str | None
) -> None:
    machine.member_of(f"4:memory:{path}")
    machine.v1("", 1000, 400)
    machine.v1("../sibling", 1, 0)
    if mount_root is not None:
        mount = machine.cgroup / "memory"
        machine.write("proc/self/mountinfo", f"35 31 0:32 {mount_root} {mount} rw - cgroup cgroup rw,memory\n")
    assert machine.probe().headroom() == Headroom(600, "cgroup")


def test_a_mount_of_a_part_of_the_hierarchy(machine: Machine) -> None:
    """Without a namespace, paths are those of the host, while the mount begins at the container's group."""
    machine.member_of("0::/docker/0123abc/task")
    machine.v2("", 2000, 500)
    machine.v2("task", 1000, 400)
    machine.write(
        "proc/self/mountinfo",
        f"short line\n36 31 0:38 /docker/0123abc {machine.cgroup} rw,relatime - cgroup2 cgroup2 rw\n",
    )
    assert machine.probe().headroom() == Headroom(600, "cgroup")


@pytest.mark.parametrize(("soft", "free"), [(1000 * MIB, 900 * MIB), (100 * MIB, 0), (50 * MIB, 0)])
def test_address_space(machine: Machine, soft: int, free: int) -> None:
    machine.address_space = soft
    assert machine.probe().headroom() == Headroom(free, "rlimit_as")


@pytest.mark.parametrize(
    ("group", "space", "available", "expected"),
    [
        (300, 400, 500, Headroom(300 * MIB, "cgroup")),
        (400, 300, 500, Headroom(300 * MIB, "rlimit_as")),
        (500, 400, 300, Headroom(300 * MIB, "available")),
    ],
)
def test_the_tightest_limit_binds(machine: Machine, group: int, space: int, available: int, expected: Headroom) -> None:
    machine.member_of("0::/job")
    machine.v2("job", group * MIB + 7, 7)
    machine.address_space = (space + 100) * MIB
    machine.write("proc/meminfo", f"MemAvailable: {available * 1024} kB\n")
    assert machine.probe().headroom() == expected


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/self/cgroup", "garbage\n::\n\n4:memory\n"),
        ("proc/self/cgroup", ""),
        ("proc/self/mountinfo", "1 2 3\n\n" + "x " * 20),
        ("proc/self/statm", "garbage\n"),
        ("cgroup/job/memory.max", "garbage\n"),
        ("cgroup/job/memory.max", ""),
        ("cgroup/job/memory.current", "garbage\n"),
    ],
)
def test_garbage_does_not_bind(machine: Machine, path: str, text: str) -> None:
    """Every limit is far below the available memory, and each file in turn becomes unreadable."""
    machine.member_of("0::/job")
    machine.v2("job", 1000, 400)
    machine.address_space = 200 * MIB
    machine.write(path, text)
    left = {Headroom(600, "cgroup"), Headroom(100 * MIB, "rlimit_as")}
    if path.startswith("cgroup") or path.endswith("self/cgroup"):
        left.discard(Headroom(600, "cgroup"))
    assert machine.probe().headroom() == min(left)


@pytest.mark.parametrize("stat", ["", "garbage\n", "inactive_file\nactive_file x\n", "inactive_file -\n"])
def test_without_statistics_all_usage_counts(machine: Machine, stat: str) -> None:
    machine.member_of("0::/job")
    machine.v2("job", 1000, 400, stat)
    assert machine.probe().headroom() == Headroom(600, "cgroup")


def test_garbage_in_meminfo_leaves_the_other_limits(machine: Machine) -> None:
    machine.write("proc/meminfo", "MemAvailable:\n")
    assert machine.probe().headroom() is None
    machine.address_space = 200 * MIB
    assert machine.probe().headroom() == Headroom(100 * MIB, "rlimit_as")


def test_usage_is_current_and_the_rest_is_refreshed_when_due(machine: Machine) -> None:
    machine.member_of("0::/job")
    machine.v2("job", 1000, 400, "inactive_file 100\n")
    probe = machine.probe()
    assert probe.headroom() == Headroom(700, "cgroup")
    machine.v2("job", 2000, 500, "inactive_file 200\n")
    machine.now += 0.001
    assert probe.headroom() == Headroom(600, "cgroup")
    machine.now += 0.001
    assert probe.headroom() == Headroom(600, "cgroup")
    machine.now += 0.050
    assert probe.headroom() == Headroom(1700, "cgroup")


@pytest.mark.parametrize("free, seconds", [(800 * MIB, 0.001), (8000 * MIB, 0.010), (1 << 40, 0.050)])
def test_the_more_is_free_the_longer_it_is_believed(
    machine: Machine, free: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measurement is valid until others could use a hundredth of it, at most 50 ms, and for this task only."""
    monkeypatch.setattr(probes, "_TAKEN_PER_SECOND", 8000 * MIB)
    machine.write("proc/meminfo", "")
    machine.member_of("0::/job")
    machine.v2("", "max", 0)

    def used(size: int) -> None:
        machine.v2("job", free + 100 * MIB, size)

    used(100 * MIB)
    probe = machine.probe()
    assert probe.headroom() == Headroom(free, "cgroup")
    used(200 * MIB)
    machine.now += 0.9 * seconds
    assert probe.headroom() == Headroom(free, "cgroup")
    assert probe.headroom(lambda limit, group: 2) == Headroom(free - 100 * MIB, "cgroup")
    used(300 * MIB)
    machine.now += 1.2 * seconds
    assert probe.headroom() == Headroom(free - 200 * MIB, "cgroup")
    used(400 * MIB)
    probe.expire()
    assert probe.headroom() == Headroom(free - 300 * MIB, "cgroup")


def test_a_belief_brings_its_group_back(machine: Machine) -> None:
    """Tasks are counted by the limiting group. A measurement of the system in between must not change their group."""
    machine.write("proc/meminfo", f"MemAvailable: {1 << 30} kB\n")
    machine.member_of("0::/job")
    machine.v2("", "max", 0)
    machine.v2("job", 8000 * MIB, 0)
    probe = machine.probe()
    assert probe.headroom() == Headroom(8000 * MIB, "cgroup")
    group = probe.binding_group
    assert group
    probe.binding_group = 0
    assert probe.headroom() == Headroom(8000 * MIB, "cgroup")
    assert probe.binding_group == group


def test_mapped_address_space_is_current(machine: Machine) -> None:
    machine.address_space = 1000 * MIB
    probe = machine.probe()
    assert probe.headroom() == Headroom(900 * MIB, "rlimit_as")
    machine.write("proc/self/statm", f"{300 * MIB // PAGE} 1 1 1 0 1 0\n")
    assert probe.headroom() == Headroom(700 * MIB, "rlimit_as")


def test_describe_names_every_limit_and_its_file(machine: Machine) -> None:
    machine.member_of("0::/job")
    machine.v2("", "max", 0)
    machine.v2("job", 1000 * MIB, 400 * MIB, f"inactive_file {100 * MIB}\n")
    machine.address_space = 2048 * MIB
    proc, cgroup = machine.proc, machine.cgroup
    assert machine.probe().describe() == [
        (
            f"cgroup v2 {cgroup / 'job'}",
            "limit 1000.0 MiB, used 400.0 MiB, 100.0 MiB of it reclaimable (memory.current, memory.stat)",
        ),
        (f"cgroup v2 {cgroup}", "no limit (memory.max, memory.high)"),
        (
            "address space (RLIMIT_AS)",
            f"limit 2.0 GiB, used 100.0 MiB ({proc}/self/statm)",
        ),
        ("available (MemAvailable)", f"8.0 GiB ({proc}/meminfo)"),
        ("headroom", "700.0 MiB, determined by cgroup"),
    ]


def test_close_releases_every_descriptor(machine: Machine) -> None:
    def descriptors() -> set[int]:
        return {number for number in range(256) if _is_open(number)}

    machine.member_of("0::/job")
    machine.v2("job", 1000, 400)
    before = descriptors()
    probe = machine.probe()
    assert descriptors() > before
    probe.close()
    assert descriptors() == before
    assert probe.headroom() is None
    probe.close()


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def run_alone(script: str) -> list[str]:
    """Return the lines that `script` prints in a separate Python process."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the real /proc")


@needs_linux
def test_touched_memory_lowers_the_real_headroom() -> None:
    """With 600 MiB of address space left, touching 200 MB reduces the headroom by 200 MB until they are freed."""
    lines = run_alone(
        """
import resource
from sparkext.memory.probes import MemoryProbe
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (600 << 20), resource.RLIM_INFINITY))
probe = MemoryProbe()
print(*probe.headroom())
block = bytearray(200_000_000)
block[::4096] = b"x" * len(block[::4096])
print(*probe.headroom())
del block
print(*probe.headroom())
"""
    )
    (before, first), (during, second), (after, third) = (line.split() for line in lines)
    assert {first, second, third} == {"rlimit_as"}
    assert int(before) - int(during) == pytest.approx(200_000_000, abs=8 * MIB)
    assert int(after) == pytest.approx(int(before), abs=8 * MIB)


@needs_linux
def test_a_forked_child_measures_itself() -> None:
    """Only the child grows; the parent's probe keeps its descriptors."""
    lines = run_alone(
        """
import os
from sparkext.memory.probes import process_probe
parent = process_probe()
assert process_probe() is parent
if os.fork() == 0:
    child = process_probe()
    assert child is not parent and process_probe() is child
    assert parent.headroom() is None
    print(int(child._statm.read().split()[0]) == int(open("/proc/self/statm").read().split()[0]), flush=True)
    os._exit(0)
assert os.wait()[1] == 0
print(process_probe() is parent, parent.headroom() is not None)
"""
    )
    assert lines == ["True", "True True"]


def test_the_group_that_binds_is_told_from_those_it_lies_in(machine: Machine) -> None:
    machine.member_of("4:memory:/jobs/one")
    machine.v1("", V1_UNLIMITED, 5000)
    machine.v1("jobs", 1000 * MIB, 900 * MIB)
    machine.v1("jobs/one", 500 * MIB, 100 * MIB)
    probe = machine.probe()
    folders = [machine.cgroup / "memory" / path for path in ("jobs/one", "jobs", "")]
    assert probe.groups == [folder.stat().st_ino for folder in folders]
    assert probe.headroom() == Headroom(100 * MIB, "cgroup")
    assert probe.binding_group == folders[1].stat().st_ino
    machine.v1("jobs/one", 500 * MIB, 450 * MIB)
    machine.now += 0.001
    assert probe.headroom() == Headroom(50 * MIB, "cgroup")
    assert probe.binding_group == folders[0].stat().st_ino


def test_the_limit_that_leaves_each_task_the_least_binds(machine: Machine) -> None:
    """Eight executors in groups of 2 GiB each, on a machine with 8 GiB: none of them may plan with its 2 GiB."""
    machine.member_of("0::/jobs/one")
    machine.v2("jobs", "max", 0)
    machine.v2("jobs/one", 3 << 30, 1 << 30)
    probe = machine.probe()
    assert probe.headroom() == Headroom(2 << 30, "cgroup")
    for sharing, expected in {3: Headroom(2 << 30, "cgroup"), 8: Headroom(8 << 30, "available")}.items():
        assert probe.headroom(lambda limit, group, n=sharing: n if limit == "available" else 1) == expected  # type: ignore[misc]
        assert bool(probe.binding_group) == (expected.limit == "cgroup")


def test_a_configured_limit_is_held_against_this_process_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)  # 435 pages are resident, 407 of them shared
    own = 28 * PAGE
    probe = MemoryProbe(machine.proc, machine.cgroup)
    unlimited = Headroom(8 << 30, "available")
    for limit, expected in {
        own + 5 * MIB: Headroom(5 * MIB, "configured"),
        own - 1: Headroom(0, "configured"),
        1 << 50: unlimited,
        0: unlimited,
    }.items():
        with probe.limited(limit):
            assert probe.headroom() == expected
            assert probe.of_system() == unlimited, "what pages of files do not count against"
        assert probe.headroom() == unlimited
    probe.close()
    with probe.limited(1 << 30):
        assert probe.headroom() is None
