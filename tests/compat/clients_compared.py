"""Other people's clients and tools that are run against the broker, and the tests that do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tests.interop.mqadmin_differences import DIFFERENCES, OF_RELEASE_5, LineDifference
from tests.interop.mqadmin_script import ELSEWHERE, EVERYDAY, Step
from tests.interop.mqadmin_script_5 import ELSEWHERE_5, REFUSED_5, RELEASE_5


def _result(steps: list[Step], rows: Iterable[LineDifference]) -> str:
    """What differs of a command, and why; or that nothing does."""
    found = [text for row in rows if (text := _difference(row, steps))]
    return " ".join(["differs:", *found] if found else ["passed"])


def _difference(row: LineDifference, steps: list[Step]) -> str:
    about = [step.name for step in steps if row.is_about(step.name)]
    return f"({', '.join(about)}) {row.why}" if 0 < len(about) < len(steps) else row.why if about else ""


def _of(command: str, script: Iterable[Step]) -> list[Step]:
    return [step for step in script if step.command == command]


def _by_4_9_8(command: str) -> str:
    steps = _of(command, EVERYDAY)
    return _result(steps, DIFFERENCES) if steps else ELSEWHERE.get(command, "has none")


def _by_5_3_3(command: str) -> str:
    steps = _of(command, RELEASE_5)
    if command in REFUSED_5:
        return "refused by name, as by Apache's broker 4.9.8"
    if steps:
        result = _result(steps, OF_RELEASE_5)
        return "as with 4.9.8" if result == "passed" and _of(command, EVERYDAY) else result
    return ELSEWHERE_5.get(command, "has none")


def _mqadmin() -> Iterator[tuple[str, str, str]]:
    commands = {step.command for step in (*EVERYDAY, *RELEASE_5)} | {*ELSEWHERE, *ELSEWHERE_5}
    for command in sorted(commands, key=str.lower):
        yield f"`{command}`", _by_4_9_8(command), _by_5_3_3(command)


MQADMIN: Final = tuple(_mqadmin())
"""Command, and what came of it when it was told by either release's mqadmin."""

CLIENTS: Final = (
    (
        "Java 4.9.8 and 5.3.3 (remoting)",
        "sends of all kinds, push, lite pull and pull, tags, SQL92, retries, dead letters, look-ups",
        "`tests/interop/test_java_clients.py`",
    ),
    ("Java 4.9.8, names and traces", "namespaces, units, message traces", "`tests/interop/test_names_and_traces.py`"),
    ("Java 5.3.3, timers", "delays of any length, recall", "`tests/compat/test_apache_timers.py`"),
    (
        "Go 2.1.2 (rocketmq-client-go)",
        "sends, push (concurrent, orderly, broadcast), pull, tags, SQL92, transactions, a group with Java",
        "`tests/interop/test_go_client.py`",
    ),
    (
        "Java 4.9.8, 5.3.3 and Go with keys (aclEnable)",
        "sends, batches, push; refused by name; while the files change",
        "`tests/interop/test_acl_clients.py`",
    ),
    (
        "Java 4.9.8, 5.3.3 and Python with keys through TLS",
        "sends, push; refused by name",
        "`tests/interop/test_tls_acl_clients.py`",
    ),
    ("Node.js (ali-ons)", "sends, push, tags, retries", "`tests/interop/test_ali_ons.py`"),
    ("Groups of Java, Go and Python", "members come and go", "`tests/interop/test_mixed_groups.py`"),
    ("Apache's broker 4.9.8 as slave or master", "copies the log", "`tests/interop/test_replicas_of_both.py`"),
    (
        "Apache's broker 4.9.8 on our store",
        "opens it, and gives it back",
        "`tests/compat/test_apache_opens_our_store.py`",
    ),
)
"""Client, what it does here, and the module of tests that shows it."""
