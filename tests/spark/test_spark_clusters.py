"""Executors in processes of their own: local-cluster, and a standalone master with workers; a broker restarts."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest

from mqcore.testing.leftovers import wait_ended
from tests.rigs import MqcoreBroker, free_port
from tests.rigs.process import Child
from tests.spark.helpers import await_readable, bodies_of, fill, make_topic, read, running_broker
from tests.waiting import wait_until

COUNT = 20_000
START_DEADLINE_S = 90.0
PROGRAM_DEADLINE_S = 300.0
ENDING_S = 30.0
WORKER = re.compile(r"Registering worker (\S+) with")

# Reads a topic, in batch and as a stream, writes it to another one, and tells who did the work.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

master, name_server, topic, target, directory, marker = sys.argv[1:]
spark = SparkSession.builder.master(master).appName("cluster test").getOrCreate()
options = {"nameServer": name_server, "retryIntervalMs": "200", "numRetries": "300"}

frame = spark.read.format("rocketmq").options(subscribe=topic, minPartitions="8", **options).load()
count = frame.count()
open(marker, "w").close()           # the test restarts the broker now
stream = spark.readStream.format("rocketmq").options(
    subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="3000", columns="body,keys", **options
).load()
query = (
    stream.writeStream.format("rocketmq").options(topic=target, dedup="true", **options)
    .option("checkpointLocation", directory).trigger(availableNow=True).start()
)
query.awaitTermination()
print(json.dumps({"count": count}))
spark.stop()
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreBroker]:
    yield from running_broker(tmp_path, flushDiskType="SYNC_FLUSH")


def spark_class(directory: Path, environment: dict[str, str], *arguments: str) -> Child:
    """Start one of Spark's daemons in the foreground."""
    home = Path(pyspark.__file__).parent
    return Child(
        [str(home / "bin" / "spark-class"), *arguments],
        log=directory / f"{arguments[0].rpartition('.')[2]}-{arguments[-1].rpartition(':')[2]}.log",
        env={**environment, "SPARK_HOME": str(home), "SPARK_LOCAL_DIRS": str(directory), "SPARK_NO_DAEMONIZE": "1"},
    )


@contextmanager
def standalone(directory: Path, environment: dict[str, str]) -> Iterator[str]:
    """A master and two workers with a core each, in processes and directories of their own; gives the master's URL."""
    port, package = free_port(), "org.apache.spark.deploy"
    url = f"spark://127.0.0.1:{port}"
    children = [
        spark_class(directory, environment, f"{package}.master.Master", "--host", "127.0.0.1",
                    "--webui-port", str(free_port()), "--port", str(port))
    ]  # fmt: skip
    try:
        wait_until(lambda: listens(port), START_DEADLINE_S, "the master listens")
        for number in range(2):
            work = directory / f"worker-{number}"
            ports = ("--host", "127.0.0.1", "--webui-port", str(free_port()))
            size = ("--cores", "1", "--memory", "700m", "--work-dir", str(work))
            worker = f"{package}.worker.Worker"
            children.append(spark_class(work_directory(work), environment, worker, *ports, *size, url))
        log = children[0].log
        # A worker that waits too long for the answer asks again, and is noted again.
        wait_until(lambda: len(set(WORKER.findall(log.read_text()))) == 2, START_DEADLINE_S, "both workers are known")
        yield url
    finally:
        # Spark's script replaces itself by the JVM, whose executors end with their worker.
        below = [grandchild for child in children for grandchild in psutil.Process(child.pid).children(recursive=True)]
        for child in reversed(children):
            child.kill()
        wait_ended(below, ENDING_S)


def work_directory(path: Path) -> Path:
    path.mkdir()
    return path


def listens(port: int) -> bool:
    return any(
        connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
        for connection in psutil.net_connections("tcp")
        if connection.laddr
    )


def run_program(
    master: str, broker: MqcoreBroker, environment: dict[str, str], tmp_path: Path, settings: dict[str, str]
) -> None:
    topic, target = make_topic(broker, "origin", 4), make_topic(broker, "copy", 4)
    sent = [b"%07d" % number for number in range(COUNT)]
    fill(broker, topic, sent, keys=[str(number) for number in range(COUNT)], batchBytes="65536")
    program, marker = tmp_path / "program.py", tmp_path / "half-way"
    program.write_text(PROGRAM)
    given = {**settings, "spark.executor.memory": "600m", "spark.cores.max": "2"}
    submit = shlex.join(word for name, value in given.items() for word in ("--conf", f"{name}={value}"))
    process = subprocess.Popen(
        [sys.executable, program, master, broker.name_server, topic, target, tmp_path / "checkpoint", marker],
        env={**os.environ, **environment, "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell"},
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        wait_until(lambda: marker.exists() or process.poll() is not None, PROGRAM_DEADLINE_S, "the batch read is done")
        broker.kill()
        broker.start_again()
        output, _ = process.communicate(timeout=PROGRAM_DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert f'"count": {COUNT}' in output
    await_readable(broker, target)
    assert bodies_of(read(broker, subscribe=target, dedup="true")) == sent


@pytest.mark.slow
def test_local_cluster_reads_and_writes_across_a_restart_of_the_broker(
    broker: MqcoreBroker, spark_environment: dict[str, str], spark_settings: dict[str, str], tmp_path: Path
) -> None:
    run_program("local-cluster[2,1,700]", broker, spark_environment, tmp_path, spark_settings)


@pytest.mark.slow
def test_a_standalone_cluster_reads_and_writes_across_a_restart_of_the_broker(
    broker: MqcoreBroker, spark_environment: dict[str, str], spark_settings: dict[str, str], tmp_path: Path
) -> None:
    directory = work_directory(tmp_path / "cluster")
    with standalone(directory, {**os.environ, **spark_environment}) as master:
        run_program(master, broker, spark_environment, tmp_path, spark_settings)
