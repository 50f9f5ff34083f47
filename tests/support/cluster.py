"""A standalone cluster on this machine: a master and workers, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

import sparkext
from tests.support.class_archive import archive_options
from tests.support.waiting import wait_until

QUICK_START = " ".join(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archive_options()])
"""JVM options with which the processes of a small cluster start quickly."""

ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "pssst",
    "spark.network.crypto.enabled": "true",
}
"""Settings that encrypt the connections between processes, including shuffled and broadcast blocks."""

FEW_RETRIES = {"spark.shuffle.io.maxRetries": "1", "spark.shuffle.io.retryWait": "200ms"}
"""Without these settings, tasks would retry to read from a killed executor for 15 seconds."""

PYSPARK = Path(pyspark.__file__).parent
PACKAGE = Path(sparkext.__file__).parent.parent


@dataclass(frozen=True)
class Cluster:
    """The URL of the master, and the folder of executor files of each worker."""

    master: str
    local_folders: Sequence[str]


@contextmanager
def running(folder: Path, workers: int, executors: int, **settings: str) -> Iterator[Cluster]:
    """Run a master and workers, each with one core per executor, with encrypted connections."""
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


@contextmanager
def daemon(name: str, host: str, place: Path, log: Path, java: str, *options: str) -> Iterator[None]:
    """Run a process of the cluster; a worker ends together with its executors."""
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
    """Return the environment of a process that stores its files in `place`, and finds sparkext from any folder."""
    place.mkdir(exist_ok=True)
    kept = "SPARK_SUBMIT_OPTS"  # the options with which a test's driver starts quickly
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
    """Wait until a log matches a pattern this many times; return the matches."""

    def found() -> list[str]:
        return re.findall(pattern, log.read_text())

    wait_until(lambda: len(found()) >= times, lambda: f"{pattern} is in {log.name}:\n{log.read_text()}", seconds=90)
    return found()
