"""The wheel and the sdist: their contents, and that the wheel works without access to the checkout."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from sparkext.spark.jar import build_jar, installed_pyspark

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.xdist_group("wheel")  # one process builds it, once

EPOCH = "1700000000"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist, the wheel built from that sdist, and `said.txt`, the output of the build."""
    return built(checkout(tmp_path_factory.mktemp("checkout")))


def checkout(copy: Path) -> Path:
    """Copy the sources without jars. setuptools would pack leftovers of an earlier build from `build/`."""
    for name in ("sparkext", "kernels", "plans", "tests", "bench"):
        ignored = shutil.ignore_patterns("__pycache__", "jars")
        shutil.copytree(ROOT / name, copy / name, ignore=ignored, copy_function=shutil.copy)  # with the current time
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def built(copy: Path, *options: str) -> Path:
    isolation = ["--no-isolation"] if find_spec("setuptools") else []
    command = [sys.executable, "-m", "build", *isolation, *options, "--outdir", str(copy / "dist"), str(copy)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert ran.returncode == 0, ran.stdout
    (copy / "dist" / "said.txt").write_text(ran.stdout)
    return copy / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    [path] = dist.glob("*.whl")
    return path


def sources(folder: str) -> set[str]:
    """Return the Python files of a source folder, as paths below it."""
    return {path.relative_to(ROOT / folder).as_posix() for path in (ROOT / folder).rglob("*.py")}


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = {name for name in names if ".dist-info/" not in name}
    expected = {"sparkext/py.typed"}
    expected |= {f"sparkext/{path}" for path in sources("sparkext")}
    expected |= {f"sparkext/kernels/{path}" for path in sources("kernels")}
    expected |= {f"sparkext/plans/{path}" for path in sources("plans")}
    assert {name for name in packages if name.endswith((".py", ".typed"))} == expected
    assert {name.split("/")[0] for name in packages} == {"sparkext"}
    assert any(re.fullmatch(r"sparkext/jars/sparkext_2\.13-4\.\d+\.jar", name) for name in names)
    assert {"sparkext/error_conditions.json", "sparkext/jvm/common/planning/SparkExtensions.scala"} <= names
    assert any(re.fullmatch(r"sparkext-[^/]+\.dist-info/licenses/LICENSE", name) for name in names)


def test_the_wheel_names_its_license_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name.split("/")[-1]: name for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(files["METADATA"]).decode()
        commands = archive.read(files["entry_points.txt"]).decode()
        license_text = archive.read(files["LICENSE"]).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "sparkext = sparkext.__main__:main" in commands
    assert "Apache License" in license_text and license_text.rstrip().endswith("limitations under the License.")


def test_the_wheel_leaves_the_users_pyspark_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [
            archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA")
        ]
    required = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*; extra)", metadata, re.MULTILINE)
    assert sorted(required) == ["lark", "numba", "numpy", "pandas", "pyarrow"]


def test_the_sdist_holds_the_sources(dist: Path) -> None:
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "setup.py",
        "sparkext/error_conditions.json",
        "sparkext/jvm/common/planning/SparkExtensions.scala",
    } <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "sparkext/py.typed", "kernels/__init__.py"} <= names


def test_the_same_sources_give_the_same_jar(wheel: Path) -> None:
    """The wheel's jar was compiled from the sdist, the checkout's jar from its sources."""
    jar = build_jar(installed_pyspark())
    with zipfile.ZipFile(wheel) as archive:
        assert digest(archive.read(f"sparkext/jars/{jar.name}")) == digest(jar.read_bytes())


def test_the_same_sources_give_the_same_bytes(dist: Path, wheel: Path, tmp_path: Path) -> None:
    again = checkout(tmp_path / "again")
    with zipfile.ZipFile(wheel) as archive:  # with its jar, as another checkout may have it, to save compilation
        archive.extractall(again, [name for name in archive.namelist() if name.startswith("sparkext/jars/")])
    built(again, "--sdist", "--wheel")
    first, second = (
        {path.name: digest(path.read_bytes()) for path in folder.glob("sparkext-*")}
        for folder in (dist, again / "dist")
    )
    assert len(first) == 2 and first == second


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_build_has_nothing_to_warn_of(dist: Path) -> None:
    said = (dist / "said.txt").read_text()
    assert "Successfully built" in said
    assert "Warning" not in said and "would be ignored" not in said, said


def test_the_installed_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    # Without the site module no .pth file is read, so that no editable install provides its modules.
    dependencies = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    code = f"""
import json, sys
sys.path[:0] = [{str(target)!r}]
sys.path += {dependencies!r}
import sparkext
heavy = sorted({{"pyspark", "numba", "numpy", "pyarrow", "pandas"}} & set(sys.modules))
from sparkext import kernels, plans
from sparkext.__main__ import main
import sparkext.kernels.runtime.jit
status = main(["version"])
print(json.dumps([heavy, status, sparkext.__file__, kernels.__file__, plans.__file__]))
"""
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    version, facts = ran.stdout.splitlines()
    heavy, status, *files = json.loads(facts)
    assert heavy == []
    assert status == 0 and version == f"sparkext {wheel.name.split('-')[1]}"
    assert all(Path(file).is_relative_to(target) for file in files), files
