"""Apache's Java clients, by the driver in tests/interop/java.

One JavaDriver is one release. Calls that end by themselves return what they found; a consumer, and whatever else stays
for a while, is a context manager. While the driver is ``warm`` they share JVMs, as starting one costs more than most of
them, unless one is said to be *alone*, and can be killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from .java_host import JavaHost
from .maven import driver_class_path, shared_classes
from .process import Child
from .reports import QueueName, ReceivedMessage, SentMessage, read_received, read_sent
from .talkers import READY_DEADLINE_S, Produced, Talker, arguments, await_event

# The last two are RocketMQ's: how long its client waits for a connection, 3 s by default; and that it does not hang up
# when a call took too long. The broker takes that for a leave, and a lock that takes a second is such a call.
JVM_OPTIONS = (
    *("-Xms64m", "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    "-Dcom.rocketmq.remoting.client.connect.timeout=30000",
    "-Dcom.rocketmq.remoting.client.closeSocketIfTimeout=false",
)


class JavaDriver:
    """The Java client of one release. *directory* takes logs and reports."""

    def __init__(self, version: str, directory: Path, options: Sequence[str] = ()) -> None:
        """*options* are more of the virtual machine's."""
        self.version = version
        self._options = options
        self.directory = directory
        self._class_path = driver_class_path(version)
        self._runs = itertools.count(1)
        self._hosts: dict[object, JavaHost] = {}
        # Nobody listens on port 1, so this loads what most commands load, and ends.
        rehearsal = arguments(
            {"name_server": "127.0.0.1:1", "topic": "T", "group": "G", "report": os.devnull, "corpus": os.devnull}
        )
        self._archive = shared_classes(
            f"driver-{version}", JVM_OPTIONS, self._class_path, ["interop.Driver", "consume", *rehearsal]
        )

    @contextlib.contextmanager
    def warm(self) -> Iterator[Self]:
        """While this lasts, JVMs are kept for all that is not alone, one of them from now on."""
        # A child dies with the thread that started it: other threads find what this one has started.
        self._hosts[None] = self._new_host()
        try:
            yield self
        finally:
            for host in self._hosts.values():
                host.kill()
            self._hosts.clear()

    def _child(self, stem: Path, command: Sequence[str]) -> Child:
        self.directory.mkdir(parents=True, exist_ok=True)
        java = ["java", *JVM_OPTIONS, *self._options, self._archive, f"-Duser.home={self.directory}"]
        return Child(
            [*java, "-cp", self._class_path, "interop.Driver", *command],
            log=stem.with_name(stem.name + ".log"),
            talks=True,
        )

    def _stem(self, command: str) -> Path:
        return self.directory / f"java-{self.version}-{command}-{next(self._runs)}"

    @staticmethod
    def _report_of(stem: Path) -> Path:
        return stem.with_name(stem.name + ".tsv")

    def _start(self, command: str, options: Mapping[str, object], *, alone: bool = False) -> tuple[Child, Path]:
        """Start a sub-command, in a JVM with others unless *alone*; gives the child and where its report goes."""
        stem = self._stem(command)
        report = self._report_of(stem)
        words = [command, *arguments({**options, "report": report})]
        host = None if alone else self._host(options.get("poll_ms"))
        return self._child(stem, words) if host is None else host.guest(words), report

    def _new_host(self) -> JavaHost:
        return JavaHost(self._child(self._stem("host"), ["host"]))

    def _host(self, poll_ms: object) -> JavaHost | None:
        """The JVM for those with this pause between two looks at the shares of a group: a JVM has one. None if cold."""
        host = self._hosts.get(poll_ms)
        if host is not None and host.is_alive:
            return host
        if not self._hosts or threading.current_thread() is not threading.main_thread():
            return None
        self._hosts[poll_ms] = self._new_host()
        return self._hosts[poll_ms]

    def _run(self, command: str, options: Mapping[str, object], deadline_s: float) -> tuple[list[dict[str, Any]], Path]:
        """Run a sub-command that ends by itself; gives its events and where its report is."""
        report = self._report_of(self._stem(command))
        words = [command, *arguments({**options, "report": report})]
        with contextlib.ExitStack() as cold:
            host = self._host(None)
            if host is None:
                host = self._new_host()
                cold.callback(host.kill)
            with host.guest(words) as guest:
                return guest.read_events_before("ended", deadline_s), report

    def start_producer(self, name_server: str, topic: str, corpus: Path, **options: object) -> JavaProducer:
        """Start sending a corpus. Options are those of Corpus.java and Produce.java; None means the default."""
        child, report = self._start(
            "produce", {"name_server": name_server, "topic": topic, "corpus": corpus, **options}
        )
        return JavaProducer(child, report)

    def produce(
        self, name_server: str, topic: str, corpus: Path, *, deadline_s: float = 240, **options: object
    ) -> Produced:
        """Send a corpus and wait for all answers; options as for start_producer."""
        given = {"name_server": name_server, "topic": topic, "corpus": corpus, **options}
        (_, event), report = self._run("produce", given, deadline_s)
        return produced(event, report)

    def consumer(
        self, name_server: str, topic: str, group: str, *, alone: bool = False, **options: object
    ) -> JavaConsumer:
        """A started push consumer. Options are those of Consume.java; *refusals* may be a mapping key -> times."""
        refusals = options.get("refusals")
        if isinstance(refusals, Mapping):
            path = self.directory / f"refusals-{self.version}-{next(self._runs)}.tsv"
            path.write_text("".join(f"{key}\t{times}\n" for key, times in refusals.items()))
            options["refusals"] = path
        given = {"name_server": name_server, "topic": topic, "group": group, **options}
        child, report = self._start("consume", given, alone=alone)
        return JavaConsumer(child, report)

    def lite_consumer(self, name_server: str, topic: str, group: str, **options: object) -> JavaConsumer:
        """A started lite pull consumer that shares *topic* with its group. Options are those of LiteConsume.java."""
        given = {"name_server": name_server, "topic": topic, "group": group, **options}
        child, report = self._start("liteconsume", given)
        return JavaConsumer(child, report)

    def _pull(
        self, command: str, name_server: str, topic: str, deadline_s: float, options: Mapping[str, object]
    ) -> list[ReceivedMessage]:
        _, report = self._run(command, {"name_server": name_server, "topic": topic, **options}, deadline_s)
        return read_received(report)

    def pull(
        self, name_server: str, topic: str, *, deadline_s: float = 120, **options: object
    ) -> list[ReceivedMessage]:
        """What DefaultMQPullConsumer finds from *from* to the end of each queue (or of *queue_id*)."""
        return self._pull("pull", name_server, topic, deadline_s, options)

    def lite_pull(
        self, name_server: str, topic: str, *, deadline_s: float = 120, **options: object
    ) -> list[ReceivedMessage]:
        """What DefaultLitePullConsumer polls after assign and seek to *from*: *count* messages at most."""
        return self._pull("litepull", name_server, topic, deadline_s, options)

    def _lookup(self, command: str, event: str, options: Mapping[str, object]) -> list[dict[str, Any]]:
        events, _ = self._run(command, options, READY_DEADLINE_S)
        assert all(found["event"] == event for found in events), events
        return events

    def offsets(self, name_server: str, topic: str, *, time_ms: int | None = None) -> list[dict[str, Any]]:
        """Per queue: broker, queueId, min, max, earliestStoreTimeMs, and `at` (the offset for *time_ms*) if asked."""
        return self._lookup("offsets", "queue", {"name_server": name_server, "topic": topic, "time_ms": time_ms})

    def view(self, name_server: str, topic: str, message_id: str) -> dict[str, Any]:
        """The message with an offset message id or a unique id."""
        (found,) = self._lookup("view", "message", {"name_server": name_server, "topic": topic, "id": message_id})
        return found

    def query(self, name_server: str, topic: str, key: str) -> list[dict[str, Any]]:
        """The messages with a key."""
        return self._lookup("query", "message", {"name_server": name_server, "topic": topic, "key": key})

    def allocate(self, cases: Path) -> list[str]:
        """Each line of the file *cases* with what the release's strategies make of it; see Allocate.java."""
        _, report = self._run("allocate", {"cases": cases}, READY_DEADLINE_S)
        return report.read_text(encoding="utf-8").splitlines()

    def request(self, name_server: str, topic: str, corpus: Path, **options: object) -> list[dict[str, Any]]:
        """Ask with each line of a corpus through a topic and give the replies (key, body)."""
        return self._lookup(
            "request", "reply", {"name_server": name_server, "topic": topic, "corpus": corpus, **options}
        )

    def answerer(self, name_server: str, topic: str, group: str) -> Child:
        """A started consumer that replies to requests until its input ends."""
        child, _ = self._start("answer", {"name_server": name_server, "topic": topic, "group": group})
        await_event(child, "ready")
        return child

    def transact(self, name_server: str, topic: str, corpus: Path, **options: object) -> JavaTransactions:
        """A producer that sends the corpus in transactions; see Transact.java for which line does what."""
        child, report = self._start(
            "transact", {"name_server": name_server, "topic": topic, "corpus": corpus, **options}
        )
        return JavaTransactions(child, report)

    def timed(self, name_server: str, topic: str, **options: object) -> JavaTimers:
        """A producer of messages that wait for a time; options as in Timed.java: prefix, count, delay_ms."""
        child, report = self._start("timed", {"name_server": name_server, "topic": topic, **options})
        return JavaTimers(child, report)


def produced(event: Mapping[str, Any], report: Path) -> Produced:
    """What a producer says at its end, with its report."""
    return Produced(event["messages"], event["accepted"], event["failures"], event["seconds"], read_sent(report))


class JavaProducer(Talker):
    """A producer that is connected and sending."""

    def __init__(self, child: Child, report: Path) -> None:
        super().__init__(child, report)
        await_event(child, "ready")

    def finish(self, deadline_s: float = 240) -> Produced:
        """Wait until each message was answered or failed, and for the end of the process."""
        event = await_event(self.child, "produced", deadline_s)
        self.child.wait()
        return produced(event, self._report)


class JavaTimers(Talker):
    """A producer that has sent messages that wait; *sent* has what is known of each: key, due (ms), handle, id."""

    def __init__(self, child: Child, report: Path) -> None:
        super().__init__(child, report)
        self.sent: list[dict[str, Any]] = await_event(child, "sent")["messages"]

    def recall(self, key: str) -> str:
        """Take a message back; the id that the client is told."""
        self.child.tell(key)
        return str(self.child.read_event("recalled", READY_DEADLINE_S)["id"])


class JavaTransactions(Talker):
    """A transactional producer; it stays, to answer the broker's checks, until finish()."""

    def await_checks(self, deadline_s: float) -> dict[str, Any]:
        """Wait until the broker has asked about each open transaction: counts messages, checks, unasked."""
        return await_event(self.child, "transacted", deadline_s)

    def finish(self) -> list[SentMessage]:
        """End the producer; gives what it sent, with the local transaction state as status."""
        self.child.end_input()
        self.child.wait()
        return read_sent(self._report)


class JavaConsumer(Talker):
    """A running push consumer."""

    def __init__(self, child: Child, report: Path) -> None:
        super().__init__(child, report)
        self.client_id: str = await_event(child, "ready")["client"]

    def queues(self) -> list[QueueName]:
        """The queues of the topic that this consumer holds now."""
        return [QueueName(queue["broker"], queue["queueId"]) for queue in self.ask("queues")["queues"]]

    def retry_queues(self) -> int:
        """How many queues of the group's retry topic this consumer holds now."""
        return int(self.ask("queues")["retryQueues"])

    def count(self) -> int:
        """Deliveries so far, repeated ones included."""
        return int(self.ask("count")["deliveries"])

    def commit(self) -> None:
        """Send the offsets to the broker now; a lite consumer cannot."""
        self.ask("commit")

    def stop(self) -> list[ReceivedMessage]:
        """Shut the consumer down in order (it commits its offsets) and give its deliveries in their order."""
        self.child.end_input()
        await_event(self.child, "stopped")
        self.child.wait()
        return read_received(self._report)


def allocated(consumers: Sequence[JavaConsumer]) -> list[QueueName]:
    """The queues that the consumers of a group hold together, sorted; a queue held twice stands there twice."""
    return sorted(queue for consumer in consumers for queue in consumer.queues())
