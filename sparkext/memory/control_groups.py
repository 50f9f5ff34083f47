"""The control groups that account for a process's memory, of version 1 or 2: what they allow, and what is used up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sparkext.memory.kernel_file import KernelFile, field, read_once
from sparkext.wording import size

# Version 1 has no word for "unlimited" but a huge number, which depends on the page size.
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class _Layout:
    """Where a version of control groups keeps what the probe needs.

    Memory that the kernel can take back at once is not used up: file pages on both LRU lists. The active
    list is included, unlike in what Kubernetes calls the working set, since pages get there by being read
    twice and are dropped all the same; neither list holds tmpfs pages, which only swap could free. Pages that
    are dirty or being written are excluded: to free them takes disk writes that an allocation would have to
    wait for. Mapped pages, such as an index over a build side, are included: an output that displaces a few
    of them costs some reads, but without them a build side near the limit would leave no headroom at all.
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
# Above memory.high nobody is killed, but the kernel stalls the processes: as good as the end.
_V2 = _Layout(
    name="cgroup v2",
    limits=("memory.max", "memory.high"),
    usage="memory.current",
    file_pages=("inactive_file", "active_file"),
    unwritten_pages=("file_dirty", "file_writeback"),
)


class ControlGroup:
    """One control group on the way from the process up to the root."""

    def __init__(self, folder: Path, layout: _Layout) -> None:
        self.folder = folder
        self.number = folder.stat().st_ino if folder.is_dir() else 0
        self.name = layout.name
        self.limit: int | None = None
        self.reclaimable = 0
        self._limits = [KernelFile(folder / name) for name in layout.limits]
        self._usage = KernelFile(folder / layout.usage)
        self._stat = KernelFile(folder / "memory.stat")
        self._file_pages = [_needle(name) for name in layout.file_pages]
        self._unwritten_pages = [_needle(name) for name in layout.unwritten_pages]

    def refresh(self) -> None:
        """Read again what changes slowly or costs much. Without a limit nothing else is needed."""
        limits = [limit for file in self._limits if (limit := file.number()) is not None]
        self.limit = min((limit for limit in limits if limit < _UNLIMITED), default=None)
        if self.limit is not None:
            stat = b"\n" + self._stat.read()
            pages = sum(field(stat, needle) or 0 for needle in self._file_pages)
            self.reclaimable = max(0, pages - sum(field(stat, needle) or 0 for needle in self._unwritten_pages))

    def free(self) -> int | None:
        """Bytes that the group may still take; None if it has no limit or does not say what it uses."""
        if self.limit is None or (usage := self._usage.number()) is None:
            return None
        return self.limit - max(0, usage - self.reclaimable)

    def describe(self) -> tuple[str, str]:
        """What the group is called, and what it allows, with the files that say so."""
        label = f"{self.name} {self.folder}"
        if self.limit is None:
            return label, f"no limit ({', '.join(file.path.name for file in self._limits)})"
        usage = self._usage.number()
        used = "unknown" if usage is None else f"{size(usage)}, {size(self.reclaimable)} of it reclaimable"
        return (
            label,
            f"limit {size(self.limit)}, used {used} ({self._usage.path.name}, {self._stat.path.name})",
        )

    def close(self) -> None:
        """Release the descriptors."""
        for file in (*self._limits, self._usage, self._stat):
            file.close()


def control_groups(proc: Path, cgroup: Path) -> Iterator[ControlGroup]:
    """The control groups that account for this process's memory, innermost first."""
    layout, base, path = _membership(proc, cgroup)
    if layout is None:
        return
    folder = _visible_folder(proc, base, path)
    while True:
        yield ControlGroup(folder, layout)
        # In version 1, a parent may have been told not to account for its children.
        if folder == base or read_once(folder.parent / "memory.use_hierarchy").strip() == b"0":
            return
        folder = folder.parent


def _membership(proc: Path, cgroup: Path) -> tuple[_Layout | None, Path, str]:
    """Layout, mount point and path of the memory control group, from lines `id:controllers:path`.

    Where version 1 has the memory controller, version 2 may be mounted beside it but cannot have it.
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


def _visible_folder(proc: Path, base: Path, path: str) -> Path:
    """The folder of control group `path` below the mount point `base`.

    In a container the mount may show only a part of the hierarchy, whose name `mountinfo` tells and the path
    begins with; with a namespace the path may even lead outside (`/../other`). What is not visible under the
    mount falls back to the mount's own root, which is then the container's group.
    """
    inside = PurePosixPath(path)
    for line in os.fsdecode(read_once(proc / "self" / "mountinfo")).splitlines():
        fields = line.split(" ", 5)
        if len(fields) == 6 and fields[4] == str(base) and inside.is_relative_to(fields[3]):
            inside = inside.relative_to(fields[3])
    folder = base / str(inside).lstrip("/")
    return folder if ".." not in inside.parts and folder.is_dir() else base


def _needle(name: str) -> bytes:
    return b"\n%s " % name.encode()
