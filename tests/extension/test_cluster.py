"""The extension on a standalone cluster: a master, two workers and a driver, each a process of its own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

import sparkext
from sparkext.spark.extension import EXTENSION
from sparkext.spark.jar import jar_path
from tests.extension.extension_checks import ENCRYPTED, QUICK_START

HERE = Path(__file__).parent
PYSPARK = Path(pyspark.__file__).parent
PACKAGE = Path(sparkext.__file__).parent.parent
WORKERS = 2
CASES = 21  # so that a case that is not collected any more is noticed

pytestmark = [pytest.mark.timeout(540), pytest.mark.xdist_group("cluster")]


@dataclass(frozen=True)
class Cluster:
    """Where its master listens, and per worker the folder of its executors' files."""

    master: str
    local_folders: Sequence[str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one executor.

    Each is a host of its own: Spark starts no copy of a task on the host where the task runs already.
    """
    with running(tmp_path_factory.mktemp("cluster"), WORKERS, 1) as found:
        yield found


@contextmanager
def running(folder: Path, workers: int, executors: int, **settings: str) -> Iterator[Cluster]:
    """Run a master and workers that have a core for each of some executors, which talk to each other in secret."""
    local_folders = []
    told = {**ENCRYPTED, **{key.replace("_", "."): value for key, value in settings.items()}}
    java = " ".join([QUICK_START, *(f"-D{key}={value}" for key, value in told.items())])
    with ExitStack() as processes:
        log = folder / "master.log"
        processes.enter_context(daemon("master.Master", "127.0.0.1", folder / "master", log, java))
        (address,) = awaited(log, r"Starting Spark master at (\S+)", 1)
        for number in range(workers):
            host, place = f"127.0.0.{number + 2}", folder / f"worker{number}"
            size = ["--cores", str(executors), "--memory", f"{600 * executors}m"]
            options = [*size, "--work-dir", str(place / "work"), address]
            log_of_worker = folder / f"worker{number}.log"
            processes.enter_context(daemon("worker.Worker", host, place, log_of_worker, java, *options))
            local_folders.append(str(place))
        awaited(log, r"(Registering worker)", workers)
        yield Cluster(address, local_folders)


def test_the_cases_pass_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    told = tmp_path / "cases.xml"
    options = ["-q", "-p", "no:cacheprovider", "--timeout=240", f"--junitxml={told}", str(HERE / "cluster_cases.py")]
    where = {"CLUSTER_MASTER": cluster.master, "CLUSTER_FOLDERS": os.pathsep.join(cluster.local_folders)}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=480,
        umask=0,
        cwd=HERE.parent.parent,
        env=environment(tmp_path / "driver", **where),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    suite = ElementTree.parse(told).getroot().find("testsuite")
    assert suite is not None
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": CASES, "failures": 0, "errors": 0, "skipped": 0}, ran.stdout


def test_executors_come_and_go(cluster: Cluster, tmp_path: Path) -> None:
    run_script("executors_come_and_go.py", tmp_path, cluster.master)


def test_executors_of_one_host(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as free:
        port = str(free.getsockname()[1])
    with running(tmp_path, 1, 2, spark_shuffle_service_enabled="true", spark_shuffle_service_port=port) as one_host:
        run_script("executors_of_one_host.py", tmp_path, one_host.master, port)


def run_script(name: str, folder: Path, *arguments: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(HERE / "scripts" / name), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        env=environment(folder / "driver", CLUSTER_FOLDERS=""),
    )
    assert ran.returncode == 0 and ran.stdout.endswith("all is well\n"), ran.stdout + ran.stderr


def test_doctor_as_a_job(cluster: Cluster, tmp_path: Path) -> None:
    """It looks at the session of its command line, and at workers of the cluster."""
    job = tmp_path / "check.py"
    job.write_text("from sparkext.cli.doctor import run; raise SystemExit(run())\n")
    options = ["--master", cluster.master, "--jars", str(jar_path()), "--executor-memory", "512m"]
    settings = {
        "spark.sql.extensions": EXTENSION,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.extraJavaOptions": QUICK_START,
        **ENCRYPTED,
    }
    options += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    ran = subprocess.run(
        [str(PYSPARK / "bin" / "spark-submit"), *options, str(job)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=480,
        env=environment(tmp_path / "driver", PYSPARK_PYTHON=sys.executable),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = dict(re.findall(r"^ok    (session|worker imports|a join) +(.*)$", ran.stdout, re.MULTILINE))
    assert f"({cluster.master})" in found["session"], ran.stdout
    assert f"sparkext {sparkext.__version__}" in found["worker imports"]
    assert found["a join"].endswith(", planned by the extension")


@contextmanager
def daemon(name: str, host: str, place: Path, log: Path, java: str, *options: str) -> Iterator[None]:
    """Run a process of the cluster; a worker takes its executors along when it ends."""
    command = [str(PYSPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    command += ["--host", host, "--port", "0", "--webui-port", "0", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment(place, SPARK_DAEMON_JAVA_OPTS=java),
            umask=0,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environment(place: Path, **others: str) -> dict[str, str]:
    """This process's environment for one whose files go to `place`, and which finds sparkext from any folder."""
    place.mkdir(exist_ok=True)
    kept = "SPARK_SUBMIT_OPTS"  # how the driver of a test starts quickly
    inherited = {key: value for key, value in os.environ.items() if key == kept or not key.startswith("SPARK_")}
    path = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")]))
    return inherited | {
        "PYTHONPATH": path,
        "SPARK_HOME": str(PYSPARK),
        "SPARK_LOCAL_DIRS": str(place),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        **others,
    }


def awaited(log: Path, pattern: str, times: int) -> list[str]:
    """Wait until a log says something so many times; return what it said."""
    deadline = time.monotonic() + 90
    while len(found := re.findall(pattern, log.read_text())) < times:
        assert time.monotonic() < deadline, f"{pattern} is not in {log.name}:\n{log.read_text()}"
        time.sleep(0.1)
    return found
