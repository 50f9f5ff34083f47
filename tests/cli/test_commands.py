"""The command line without Spark: exit statuses, Java, findings, and TPC-H data, which is complete or absent."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from sparkext import __version__
from sparkext.__main__ import main
from sparkext.cli import demo, doctor, session_checks, tpch
from sparkext.cli.finding import Finding, Status
from sparkext.errors import EnvironmentProblemError
from sparkext.spark import jar
from sparkext.spark.java import parse_java_major, require_java

ROOT = Path(__file__).parents[2]
Executable = Callable[[str, str], Path]


@pytest.fixture
def executable(tmp_path: Path) -> Executable:
    """Write a shell script under tmp_path and return its path."""

    def write(name: str, body: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


# --- Java -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "major"),
    [
        ("1.8.0_292", 8),
        ("9", 9),
        ("11.0.2", 11),
        ("17.0.15", 17),
        ("21", 21),
        ("24-ea", 24),
        ("25.0.1.0.1", 25),
    ],
)
def test_java_major(version: str, major: int) -> None:
    assert parse_java_major(version) == major


def says(version: str) -> str:
    return f"""echo 'openjdk version "{version}" 2025-04-15' >&2"""


def test_java_home_goes_before_path(executable: Executable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executable("path/java", says("11.0.2"))
    at_home = executable("home/bin/java", says("21.0.1"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert require_java() == (at_home, "21.0.1")


@pytest.mark.parametrize("java_home", [None, ""])
def test_java_on_path_counts_without_java_home(
    executable: Executable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, java_home: str | None
) -> None:
    on_path = executable("path/java", says("17.0.15"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if java_home is not None:
        monkeypatch.setenv("JAVA_HOME", java_home)
    assert require_java() == (on_path, "17.0.15")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (says("1.8.0_292"), r"is Java 1\.8\.0_292, and Spark needs Java 17"),
        (says("11.0.2"), r"is Java 11\.0\.2"),
        ("echo 'no such jvm' >&2; exit 1", "printed no version, but: no such jvm"),
        ("exit 0", "printed no version, but: nothing"),
        ("kill -9 $$", "printed no version"),
    ],
)
def test_a_useless_java_is_named(
    executable: Executable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, complaint: str
) -> None:
    java = executable("home/bin/java", body)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(EnvironmentProblemError, match=complaint) as caught:
        require_java()
    assert str(java) in str(caught.value)
    assert "openjdk-17-jre-headless" in str(caught.value)


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EnvironmentProblemError, match="no java on PATH"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(EnvironmentProblemError, match="nowhere, which contains no bin/java"):
        require_java()
    assert main(["doctor", "--only", "java"]) == 1
    assert main(["demo"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("FAIL  java            JAVA_HOME is ") and " -> Correct it" in out
    assert err.startswith("sparkext: JAVA_HOME is ")


# --- findings -------------------------------------------------------------------------------------


def test_a_finding_is_one_line() -> None:
    assert str(Finding(Status.OK, "java", "17.0.15")) == "ok    java            17.0.15"
    told = str(Finding(Status.WARN, "memory", "little", "get more", ("a", "b"))).splitlines()
    assert told == ["warn  memory          little -> get more", f"{'':<22}a", f"{'':<22}b"]
    assert str(Finding(Status.FAIL, "numba", "gone", "get it")) == "FAIL  numba           gone -> get it"


def test_a_check_that_raises_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Finding:
        raise RuntimeError("first line\nsecond line")

    def no_session() -> Iterator[Finding]:
        yield Finding(Status.OK, "session", "started")
        raise RuntimeError("ended\nearly")

    monkeypatch.setattr(doctor, "LOCAL_CHECKS", {"numba": broken, "python": doctor.check_python})
    monkeypatch.setattr(session_checks, "_run_checks_in_session", no_session)
    assert doctor.run() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("sparkext ")
    assert lines[2] == "FAIL  numba           RuntimeError: first line"
    assert lines[3].startswith("ok    python")
    assert lines[4] == "ok    session         started"
    assert lines[5].startswith("FAIL  session         RuntimeError: ended -> ")
    assert lines[6] == "warn  options         not checked: there is no session"
    assert len(lines) == 4 + 1 + len(session_checks.SESSION_CHECKS) + 2
    assert lines[-1] == "2 checks failed: numba, session. Joins cannot run until this is fixed."


def test_a_warning_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told = [Finding(Status.WARN, "x", "so-so"), Finding(Status.OK, "y", "fine")]
    monkeypatch.setattr(doctor, "run_checks", lambda only: iter(told))
    assert doctor.run() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Joins can run here. 1 warning: x."
    assert doctor.run(["x"]) == 0  # some of the checks alone give no overall verdict
    assert "Joins" not in capsys.readouterr().out
    del told[0]
    assert doctor.run() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Joins can run here: everything is fine."


@pytest.mark.parametrize(("minor", "advice"), [("4.2", "jar --build"), ("3.5", "install PySpark 4.0")])
def test_no_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, minor: str, advice: str) -> None:
    (tmp_path / "version.py").write_text(f"__version__: str = '{minor}.0'\n")
    monkeypatch.setattr(doctor, "installed_pyspark", lambda: tmp_path)
    monkeypatch.setattr(jar, "installed_pyspark", lambda: tmp_path)
    monkeypatch.setattr(jar, "JAR_FOLDER", tmp_path)
    finding = doctor.check_jar()
    assert finding.status is Status.WARN and advice in finding.advice
    assert "transforms (pipelined_join) work" in finding.detail
    (tmp_path / jar.format_jar_name(minor)).touch()
    assert doctor.check_jar().status is Status.OK


def test_the_jar_for_a_distribution(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its jars are next to its Python; no PySpark is installed."""
    monkeypatch.setattr(jar, "find_spec", lambda name: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(EnvironmentProblemError, match=r"PySpark is not installed.* set SPARK_HOME"):
        jar.installed_pyspark()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    package = tmp_path / "python" / "pyspark"
    package.mkdir(parents=True)
    (package / "version.py").write_text("__version__: str = '4.3.0'\n")
    with pytest.raises(EnvironmentProblemError, match="correct SPARK_HOME"):
        jar.installed_pyspark()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    assert jar.installed_pyspark() == package
    assert jar.locate_jar().name == "sparkext_2.13-4.3.jar"
    monkeypatch.setattr(jar, "find_spec", lambda name: ModuleSpec(name, None, origin="/client/pyspark/__init__.py"))
    assert jar.installed_pyspark() == package  # as in a job whose PySpark is in a zip file
    monkeypatch.delenv("SPARK_HOME")
    with pytest.raises(EnvironmentProblemError, match="the PySpark in /client/pyspark has no jars"):
        jar.installed_pyspark()
    monkeypatch.setattr(jar, "find_spec", lambda name: ModuleSpec(name, None))  # a folder, which is not a package
    with pytest.raises(EnvironmentProblemError, match="PySpark is not installed"):
        jar.installed_pyspark()


def test_a_jar_among_those_of_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    monkeypatch.setattr(jar, "installed_pyspark", lambda: tmp_path)
    assert not jar.comes_with_spark("sparkext_2.13-4.3.jar")
    (tmp_path / "jars" / "sparkext_2.13-4.3.jar").touch()
    assert jar.comes_with_spark("sparkext_2.13-4.3.jar")


class Module:
    def __init__(self, version: str) -> None:
        self.__version__ = version


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("pandas", "2.2.3", Status.OK),
        ("pandas", "2.1.4", Status.FAIL),
        ("pandas", "3.0.0", Status.WARN),
        ("pandas", None, Status.FAIL),
        ("numba", "0.60.0", Status.FAIL),
        ("pyspark", "4.3.1", Status.OK),
        ("pyspark", "4.2.1", Status.OK),
        ("pyspark", "4.1.0", Status.OK),
        ("pyspark", "4.0.5", Status.OK),
        ("pyspark", "3.5.9", Status.WARN),
        ("pyspark", "5.0.0", Status.WARN),
        ("pyspark", None, Status.FAIL),
    ],
)
def test_versions(monkeypatch: pytest.MonkeyPatch, name: str, version: str | None, status: Status) -> None:
    def pretend(_: str) -> Module:
        if version is None:
            raise ImportError(f"No module named {name!r}")
        return Module(version)

    monkeypatch.setattr(doctor.importlib, "import_module", pretend)
    finding = doctor.LOCAL_CHECKS[name]()
    assert finding.status is status
    assert bool(finding.advice) == (status is not Status.OK)


def test_the_oldest_versions_are_those_of_the_metadata() -> None:
    stated = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name, oldest in doctor.OLDEST_PACKAGES.items():
        match = re.search(rf'"{name}>=([\d.]+)', stated)
        assert match is not None
        assert (*map(int, match[1].split(".")), 0)[:2] == oldest


def test_advice_installs_what_the_extras_install() -> None:
    """The names are valid for pip whether sparkext was installed from a wheel or from a clone."""
    stated = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for advice in (jar.INSTALL_PYSPARK, tpch.INSTALL_GENERATOR):
        command, _, requirement = advice.partition(' "')
        assert command == "pip install" and "sparkext" not in requirement
        assert f'"{requirement}' in stated


FACTS = {
    "python": ".".join(map(str, sys.version_info[:3])),
    "executable": "/usr/bin/python3",
    "imports": {"sparkext": __version__, "pyarrow": "18.0.0", "numba": "0.61.0"},
    "cache": "/somewhere/__pycache__",
    "headroom": [3 << 30, "cgroup"],
    "memory": [["cgroup", "no limit"], ["headroom", "3.0 GiB"]],
}


@pytest.mark.parametrize(
    ("check", "spoilt"),
    [
        (session_checks.check_worker_python, {"python": "3.8.1"}),
        (
            session_checks.check_worker_imports,
            {"imports": {"sparkext": "!ModuleNotFoundError: No module named 'sparkext'"}},
        ),
        (session_checks.check_worker_imports, {"imports": {"sparkext": "0.0.1"}}),
        (session_checks.check_numba_cache, {"cache": "!RuntimeError: no locator available"}),
        (session_checks.check_worker_memory, {"memory": "!OSError: no"}),
    ],
)
def test_what_a_worker_tells(check: Callable[..., Finding], spoilt: dict[str, object]) -> None:
    assert check(FACTS).status is Status.OK
    finding = check({**FACTS, **spoilt})
    assert finding.status is Status.FAIL and finding.advice
    assert "!" not in finding.detail


@pytest.mark.parametrize(
    ("headroom", "said"), [([], "no memory limit is known"), ([200 << 20, "cgroup"], "200.0 MiB free")]
)
def test_memory_that_is_short_or_unknown(headroom: list[object], said: str) -> None:
    finding = session_checks.check_worker_memory({**FACTS, "headroom": headroom})
    assert finding.status is Status.WARN and finding.advice
    assert said in finding.detail and finding.more == ("cgroup: no limit",)


def test_a_dead_worker_is_explained() -> None:
    error = RuntimeError("job aborted\n  PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has 3.8\nat …")
    finding = session_checks.check_dead_worker(error)
    assert finding.status is Status.FAIL
    assert "[PYTHON_VERSION_MISMATCH] Python in worker has 3.8" in finding.detail
    assert "PYSPARK_PYTHON" in finding.advice and sys.executable in finding.advice


# --- exit statuses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [[], ["dance"], ["demo", "--sf", "0"], ["demo", "--runs", "0"], ["doctor", "--only", "tea"]]
)
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert re.fullmatch(r"sparkext \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupted)
    assert main(["demo"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_the_timing_table() -> None:
    table = demo.format_timing_table(
        [demo.Measurement("slow", 6_001_215, [4, 2, 3]), demo.Measurement("fast", 6_001_215, [1.5])]
    )
    assert table.splitlines() == [
        "plan  median s  min - max s       rows  Mrow/s  speed-up",
        "----  --------  -----------  ---------  ------  --------",
        "slow      3.00  2.00 - 4.00  6,001,215    2.00     1.00x",
        "fast      1.50  1.50 - 1.50  6,001,215    4.00     2.00x",
    ]


# --- TPC-H data -----------------------------------------------------------------------------------

# A stand-in for tpchgen-cli: it writes the requested tables into the given folder.
GENERATE = """
for argument; do
  case $argument in --tables=*) tables=${argument#*=} ;; --output-dir=*) out=${argument#*=} ;; esac
done
mkdir -p "$out"
for table in $(echo "$tables" | tr , ' '); do echo "$table $3" >"$out/$table.parquet"; done
"""


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_tables_are_made_once(executable: Executable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    generator = executable("tpchgen-cli", GENERATE)
    monkeypatch.setattr(tpch, "find_generator", lambda: generator)
    root = tmp_path / "data"
    folder = tpch.ensure_tables(0.5, root)
    assert folder == root / "sf0.5"
    assert entries(root) == ["sf0.5"]
    assert entries(folder) == sorted(f"{table}.parquet" for table in tpch.TABLES)
    assert (folder / "part.parquet").read_text() == "part 0.5\n"

    generator.write_text("#!/bin/sh\nexit 1\n")
    assert tpch.ensure_tables(0.5, root) == folder  # reused: the generator would have failed
    (folder / "part.parquet").unlink()
    with pytest.raises(EnvironmentProblemError, match="exit status 1"):
        tpch.ensure_tables(0.5, root)


@pytest.mark.parametrize(
    ("ending", "complaint"),
    [
        ("exit 3", r"failed \(exit status 3\)"),
        ("kill -9 $$", "was killed by SIGKILL"),
        ('rm "$out/orders.parquet"', r"did not create orders\.parquet"),
    ],
)
def test_a_failing_generator_leaves_nothing(
    executable: Executable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: str, complaint: str
) -> None:
    generator = executable("tpchgen-cli", f"{GENERATE}\ncase $tables in *orders*) {ending} ;; esac")
    monkeypatch.setattr(tpch, "find_generator", lambda: generator)
    with pytest.raises(EnvironmentProblemError, match=complaint):
        tpch.ensure_tables(1, tmp_path / "data")
    assert entries(tmp_path / "data") == []


def test_a_killed_run_leaves_nothing_that_is_taken_for_whole(
    executable: Executable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The process dies after its second table; the next run removes the leftovers and writes all four."""
    root = tmp_path / "data"
    generator = executable("tpchgen-cli", f"{GENERATE}\ncase $tables in supplier) kill -9 $PPID ;; esac")
    code = f"""
import pathlib
from sparkext.cli import tpch
tpch.find_generator = lambda: pathlib.Path({str(generator)!r})
tpch.ensure_tables(1, pathlib.Path({str(root)!r}))
"""
    died = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert died.returncode == -9
    assert entries(root) == [".sf1.partial"]

    monkeypatch.setattr(tpch, "find_generator", lambda: executable("tpchgen-cli", GENERATE))
    tpch.ensure_tables(1, root)
    assert entries(root) == ["sf1"]


def test_the_orphan_of_a_killed_run_is_waited_for(
    executable: Executable,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A generator that outlives the process that started it must not write into the next run's data."""
    root = tmp_path / "data"
    slow = executable("slow-tpchgen-cli", f'kill -9 $PPID; sleep 1; touch "{tmp_path}/orphan-done"; {GENERATE}')
    code = f"""
import pathlib
from sparkext.cli import tpch
tpch.find_generator = lambda: pathlib.Path({str(slow)!r})
tpch.ensure_tables(1, pathlib.Path({str(root)!r}))
"""
    died = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert died.returncode == -9
    monkeypatch.setattr(tpch, "find_generator", lambda: executable("tpchgen-cli", GENERATE))
    tpch.ensure_tables(1, root)
    assert (tmp_path / "orphan-done").exists()
    assert "another run is generating" in capsys.readouterr().err
    assert entries(root) == ["sf1"]


def test_two_runs_make_the_tables_once(executable: Executable, tmp_path: Path) -> None:
    root = tmp_path / "data"
    generator = executable("tpchgen-cli", f'echo x >>"{tmp_path}/calls"; sleep 0.1; {GENERATE}')
    code = f"""
import pathlib
from sparkext.cli import tpch
tpch.find_generator = lambda: pathlib.Path({str(generator)!r})
tpch.ensure_tables(1, pathlib.Path({str(root)!r}))
"""
    both = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert (tmp_path / "calls").read_text().count("x") == len(tpch.TABLES)


def test_no_generator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(EnvironmentProblemError, match='pip install "tpchgen-cli'):
        tpch.ensure_tables(1, tmp_path)


def test_a_folder_that_cannot_be_made(executable: Executable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    generator = executable("tpchgen-cli", GENERATE)
    monkeypatch.setattr(tpch, "find_generator", lambda: generator)
    with pytest.raises(EnvironmentProblemError, match=r"Cannot write TPC-H data .*--data"):
        tpch.ensure_tables(1, generator / "below a file")
