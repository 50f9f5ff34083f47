"""The extension on a standalone cluster: a master, two workers and a driver, each in a process of its own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparkext
from sparkext.spark.extension import EXTENSION
from sparkext.spark.jar import locate_jar
from tests.support.cluster import ENCRYPTED, PYSPARK, QUICK_START, Cluster, environment, running

HERE = Path(__file__).parent
WORKERS = 2
CASES = 21  # so that a case that is no longer collected is noticed

pytestmark = [pytest.mark.timeout(540), pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a master and two workers with one executor each.

    Each worker has its own host name: Spark starts no speculative copy of a task on the host that runs the task.
    """
    with running(tmp_path_factory.mktemp("cluster"), WORKERS, 1) as found:
        yield found


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
    """The doctor checks the session of its command line and the workers of the cluster."""
    job = tmp_path / "check.py"
    job.write_text("from sparkext.cli.doctor import run; raise SystemExit(run())\n")
    options = ["--master", cluster.master, "--jars", str(locate_jar()), "--executor-memory", "512m"]
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
