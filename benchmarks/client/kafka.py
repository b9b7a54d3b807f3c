"""A Kafka broker from Maven Central as a child process, in KRaft mode: one process that is its own controller.

The class path is resolved once and kept under benchmarks/client/target, which git ignores. The settings are Kafka's
defaults but for one replica, addresses and folders; the heap is fixed, so that memory left for the page cache is known.
"""

from __future__ import annotations

import os
import shutil
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.rigs.apache import write_properties
from tests.rigs.maven import build_lock, content_hash, run_build
from tests.rigs.ports import free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

PROJECT: Final = Path(__file__).resolve().parent
TARGET: Final = PROJECT / "target"
HEAP: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""What bin/kafka-server-start.sh says."""

START_DEADLINE_S: Final = 60.0
STOP_DEADLINE_S: Final = 60.0


def resolve_class_path(pom: Path, properties: Mapping[str, str] | None = None) -> str:
    """Return the jars that *pom* with *properties* asks for, downloading what is missing; RuntimeError if it fails."""
    given = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    cached = TARGET / f"{pom.parent.name}-{pom.stem}-{content_hash(pom, *given)}.classpath"
    with build_lock(TARGET):
        if not cached.is_file() or not all(Path(jar).is_file() for jar in cached.read_text().split(os.pathsep)):
            fresh = cached.with_name(cached.name + ".new")
            command = ["mvn", "--batch-mode", "--quiet", f"--file={pom}", "dependency:build-classpath"]
            run_build([*command, *given, f"-Dmdep.outputFile={fresh}"], cwd=pom.parent)
            fresh.rename(cached)
    return cached.read_text().strip()


def kafka_class_path() -> str:
    """Return the broker's jars, downloading what is missing."""
    return resolve_class_path(PROJECT / "pom.xml")


class KafkaBroker:
    """A broker with its log in *directory*; it serves when the constructor returns."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{free_port()}"
        controller = f"127.0.0.1:{free_port()}"
        configuration = write_properties(
            directory / "server.properties",
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@{controller}",
                "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
                "advertised.listeners": f"PLAINTEXT://{self.address}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(directory / "log"),
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "group.initial.rebalance.delay.ms": "0",
                "auto.create.topics.enable": "false",
            },
        )
        java = ["java", *HEAP, "-cp", kafka_class_path()]
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        run_build([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", configuration], cwd=directory)
        self.child = Child([*java, "kafka.Kafka", configuration], log=directory / "kafka.out")
        try:
            wait_until(lambda: not self.child.is_alive or self._serves(), START_DEADLINE_S, "Kafka serves")
            if not self.child.is_alive:
                raise self.child.error("ended while it started")
        except BaseException:
            self.child.kill()
            raise

    def _serves(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic of one replica and wait until it is there."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        wait_until(lambda: len(admin.list_topics(name, timeout=5).topics[name].partitions) == partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.child.kill()


def missing_tools() -> str:
    """Say why no Kafka broker can run here; an empty text if one can."""
    absent = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""
