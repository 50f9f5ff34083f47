"""The control groups (version 1 or 2) that account for a process's memory: their limits and their usage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sparkext.memory.kernel_file import KernelFile, parse_field, read_once
from sparkext.wording import format_bytes

# Version 1 represents "unlimited" by a huge number, which depends on the page size.
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class _Layout:
    """File and field names of a version of control groups.

    Memory that the kernel can reclaim at once counts as free: file pages on both LRU lists. In contrast to the
    working set of Kubernetes, this includes the active list, since pages are added to it when they are read twice,
    and are reclaimed nevertheless. Neither list contains tmpfs pages, which could only be freed by swapping. Dirty
    pages and pages under writeback are excluded: an allocation would have to wait for them to be written to disk.
    Mapped pages, such as an index over a build side, are included: reclaiming a few of them for an output costs some
    reads, but without them a build side near the limit would leave no headroom at all.
    """

    name: str
    limits: tuple[str, ...]
    usage: str
    file_pages: tuple[str, ...]
    unwritten_pages: tuple[str, ...]


_V1 = _Layout(
    name="cgroup v1",
    limits=("memory.limit_in_bytes",),
    usage="memory.usage_in_bytes",
    file_pages=("total_inactive_file", "total_active_file"),
    unwritten_pages=("total_dirty", "total_writeback"),
)
# Beyond memory.high no process is killed, but the kernel stalls the processes, which is almost as bad.
_V2 = _Layout(
    name="cgroup v2",
    limits=("memory.max", "memory.high"),
    usage="memory.current",
    file_pages=("inactive_file", "active_file"),
    unwritten_pages=("file_dirty", "file_writeback"),
)


class ControlGroup:
    """One control group between the process's own and the root."""

    def __init__(self, folder: Path, layout: _Layout) -> None:
        self.folder = folder
        self.number = folder.stat().st_ino if folder.is_dir() else 0
        self.name = layout.name
        self.limit: int | None = None
        self.reclaimable = 0
        self._limits = [KernelFile(folder / name) for name in layout.limits]
        self._usage = KernelFile(folder / layout.usage)
        self._stat = KernelFile(folder / "memory.stat")
        self._file_pages = [_encode_needle(name) for name in layout.file_pages]
        self._unwritten_pages = [_encode_needle(name) for name in layout.unwritten_pages]

    def refresh(self) -> None:
        """Read again the values that change slowly or are expensive. Without a limit only the limits are read."""
        limits = [limit for file in self._limits if (limit := file.number()) is not None]
        self.limit = min((limit for limit in limits if limit < _UNLIMITED), default=None)
        if self.limit is not None:
            stat = b"\n" + self._stat.read()
            pages = sum(parse_field(stat, needle) or 0 for needle in self._file_pages)
            self.reclaimable = max(0, pages - sum(parse_field(stat, needle) or 0 for needle in self._unwritten_pages))

    def free(self) -> int | None:
        """Return the bytes that the group may still use; None if it has no limit or its usage is unknown."""
        if self.limit is None or (usage := self._usage.number()) is None:
            return None
        return self.limit - max(0, usage - self.reclaimable)

    def describe(self) -> tuple[str, str]:
        """Return the group's name, and its limit and usage with the names of their files."""
        label = f"{self.name} {self.folder}"
        if self.limit is None:
            return label, f"no limit ({', '.join(file.path.name for file in self._limits)})"
        usage = self._usage.number()
        used = (
            "unknown" if usage is None else f"{format_bytes(usage)}, {format_bytes(self.reclaimable)} of it reclaimable"
        )
        return (
            label,
            f"limit {format_bytes(self.limit)}, used {used} ({self._usage.path.name}, {self._stat.path.name})",
        )

    def close(self) -> None:
        """Close the file descriptors."""
        for file in (*self._limits, self._usage, self._stat):
            file.close()


def find_control_groups(proc: Path, cgroup: Path) -> Iterator[ControlGroup]:
    """Yield the control groups that account for this process's memory, innermost first."""
    layout, base, path = _find_membership(proc, cgroup)
    if layout is None:
        return
    folder = _locate_visible_folder(proc, base, path)
    while True:
        yield ControlGroup(folder, layout)
        # In version 1, a parent may be configured not to account for its children.
        if folder == base or read_once(folder.parent / "memory.use_hierarchy").strip() == b"0":
            return
        folder = folder.parent


def _find_membership(proc: Path, cgroup: Path) -> tuple[_Layout | None, Path, str]:
    """Return the layout, mount point and path of the memory control group, from lines `id:controllers:path`.

    If version 1 has the memory controller, version 2 may also be mounted, but cannot have it.
    """
    unified: str | None = None
    for line in os.fsdecode(read_once(proc / "self" / "cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            return _V1, cgroup / "memory", path
        if line.startswith("0::"):
            unified = path
    return (None, cgroup, "/") if unified is None else (_V2, cgroup, unified)


def _locate_visible_folder(proc: Path, base: Path, path: str) -> Path:
    """Return the folder of control group `path` below the mount point `base`.

    In a container, the mount may show only a part of the hierarchy. `mountinfo` gives the name of this part, which is
    a prefix of the path. With a namespace, the path may even lead outside (`/../other`). If the folder is not visible
    under the mount, the mount's own root is returned, which is the container's group in this case.
    """
    inside = PurePosixPath(path)
    for line in os.fsdecode(read_once(proc / "self" / "mountinfo")).splitlines():
        fields = line.split(" ", 5)
        if len(fields) == 6 and fields[4] == str(base) and inside.is_relative_to(fields[3]):
            inside = inside.relative_to(fields[3])
    folder = base / str(inside).lstrip("/")
    return folder if ".." not in inside.parts and folder.is_dir() else base


def _encode_needle(name: str) -> bytes:
    return b"\n%s " % name.encode()
