"""Apache's Go client, by the driver in tests/interop/go, which is built once for each state of its source."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mqcore.client import Client
from mqcore.codes import LanguageCode

from .drivers import Driver
from .java import JavaTransactions
from .maven import BUILT, build_lock, content_hash, run_build
from .process import Child
from .reports import ReceivedMessage, read_received
from .talkers import await_event

PROJECT = Path(__file__).resolve().parent.parent / "interop" / "go"
OLDEST_GO = (1, 22)
PULL_DEADLINE_S = 120.0


def missing_tools() -> str:
    """The reason why nothing of Go can run here, empty if it can."""
    if shutil.which("go") is None:
        return "not installed: go"
    shown = subprocess.run(["go", "version"], capture_output=True, text=True, check=True, cwd=PROJECT.parent).stdout
    found = re.search(r"go(\d+)\.(\d+)", shown)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GO:
        return f"too old: {shown.strip()}, wanted Go {'.'.join(map(str, OLDEST_GO))} or newer"
    return ""


def build() -> Path:
    """Return the driver, built if its source or the versions that it stands on have changed."""
    sources = [PROJECT / "driver.go", PROJECT / "go.mod", PROJECT / "go.sum"]
    built = BUILT / "go" / f"driver-{content_hash(*sources)}"
    with build_lock(built.parent):
        if not built.is_file():
            fresh = built.with_name(built.name + ".new")
            run_build(["go", "build", "-o", fresh, "."], cwd=PROJECT)
            fresh.rename(built)
    return built


class GoClient(Driver):
    """rocketmq-client-go. *directory* takes logs and reports; its keys begin with G."""

    def __init__(self, directory: Path) -> None:
        super().__init__([build()], directory)

    def pull(self, name_server: str, topic: str, group: str, **options: object) -> list[ReceivedMessage]:
        """What its pull consumer finds in each queue from 0 to the end. Options: broker, queues, tags."""
        child, report = self._start("pull", {"name_server": name_server, "topic": topic, "group": group, **options})
        with child:
            await_event(child, "pulled", PULL_DEADLINE_S)
            child.wait()
        return read_received(report)

    def request(self, name_server: str, topic: str, corpus: Path, **options: object) -> list[dict[str, Any]]:
        """Ask with each line of a corpus through a topic and give the replies (key, body). Option: timeout_ms."""
        child, _ = self._start("request", {"name_server": name_server, "topic": topic, "corpus": corpus, **options})
        with child:
            events = child.read_events_to_end("reply", PULL_DEADLINE_S)
            child.wait()
        return events

    def transact(self, name_server: str, topic: str, corpus: Path, **options: object) -> JavaTransactions:
        """A producer that sends the corpus in transactions; see driver.go for which line does what."""
        child, report = self._start(
            "transact", {"name_server": name_server, "topic": topic, "corpus": corpus, **options}
        )
        return JavaTransactions(child, report)

    def answerer(self, name_server: str, topic: str, group: str) -> Child:
        """A started consumer that replies to requests until its input ends."""
        child, _ = self._start("answer", {"name_server": name_server, "topic": topic, "group": group})
        await_event(child, "ready")
        return child


def queues_of_go(mq: Client, group: str, topic: str) -> set[int]:
    """The queues of *topic* that the group's Go member says it has.

    Not to be asked when it has just received: with one sample of its rates it divides 0 by 0, and tells nothing.
    """
    held: set[int] = set()
    for member in mq.admin.group_members(group):
        if member.language == LanguageCode.GO:
            told = mq.admin.consumer_running_info(group, member.client_id).mq_table
            held |= {queue.queue_id for queue, state in told.items() if queue.topic == topic and not state.dropped}
    return held
