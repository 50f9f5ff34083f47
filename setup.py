"""What setuptools does not do: compile the Scala shim into a jar for the wheel, and pack the same sdist twice."""

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent


class BuildWithJar(build_py):
    """Builds the jar for the PySpark of the build environment, and for those that `SPARKEXT_PYSPARK` names.

    `SPARKEXT_PYSPARK` lists folders of further PySpark packages, of other minor versions, with ":" between them.
    """

    def run(self) -> None:
        """Build the packages, then the jars into them. For an editable install `python -m sparkext jar` does that."""
        super().run()
        if self.editable_mode:
            return
        sys.path.insert(0, str(ROOT))
        from sparkext.spark.jar import JAR_FOLDER, build_jar, installed_pyspark

        others = [Path(folder) for folder in os.environ.get("SPARKEXT_PYSPARK", "").split(":") if folder]
        for pyspark in [installed_pyspark(), *others]:
            jar = build_jar(pyspark)
            target = Path(self.build_lib) / "sparkext" / JAR_FOLDER.name / jar.name
            self.mkpath(str(target.parent))
            self.copy_file(str(jar), str(target))


class ReproducibleSdist(sdist):
    """With SOURCE_DATE_EPOCH, the same sources give the same bytes, as setuptools' wheels do by themselves."""

    def make_archive(self, *args: Any, **options: Any) -> str:
        """Pack, then pack anew without times, users and the order of a file system."""
        path = str(super().make_archive(*args, **options))
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch and path.endswith(".tar.gz"):
            _repack(Path(path), int(epoch))
        return path


def _repack(path: Path, epoch: int) -> None:
    with tarfile.open(path) as archive:
        found = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        members = [(member, stream.read() if stream else b"") for member, stream in found]
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for member, content in sorted(members, key=lambda entry: entry[0].name):
            packed = tarfile.TarInfo(member.name)
            packed.type, packed.mode, packed.mtime, packed.size = member.type, member.mode, epoch, len(content)
            archive.addfile(packed, io.BytesIO(content))


setup(cmdclass={"build_py": BuildWithJar, "sdist": ReproducibleSdist})
