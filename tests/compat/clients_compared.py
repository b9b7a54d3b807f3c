"""Other people's clients and tools that are run against the broker, and the tests that do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.interop.mqadmin_differences import DIFFERENCES, LineDifference
from tests.interop.mqadmin_script import ELSEWHERE, EVERYDAY, Step


def _result(steps: list[Step]) -> str:
    """What differs of a command, and why; or that nothing does."""
    found = [text for row in DIFFERENCES if (text := _difference(row, steps))]
    return " ".join(["differs:", *found] if found else ["passed"])


def _difference(row: LineDifference, steps: list[Step]) -> str:
    about = [step.name for step in steps if row.is_about(step.name)]
    return f"({', '.join(about)}) {row.why}" if 0 < len(about) < len(steps) else row.why if about else ""


def _mqadmin() -> Iterator[tuple[str, str, str]]:
    commands = {step.command for step in EVERYDAY}
    for command in sorted({*commands, *ELSEWHERE}, key=str.lower):
        steps = [step for step in EVERYDAY if step.command == command]
        if steps:
            yield f"`{command}`", str(len(steps)), _result(steps)
        else:
            yield f"`{command}`", "", ELSEWHERE[command]


MQADMIN: Final = tuple(_mqadmin())
"""Command, in how many ways it was called, and what came of it."""

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
