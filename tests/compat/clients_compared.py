"""Other people's clients and tools that are run against the broker, and the tests that do."""

from __future__ import annotations

from typing import Final

from tests.interop.test_mqadmin import COMMANDS, FOR_5_3_3, NEED_351

_MQADMIN_TEST: Final = "`tests/interop/test_mqadmin.py`"


def _by_release_5(name: str) -> str:
    if name not in FOR_5_3_3:
        return "not compared"
    return "passed; Apache's 4.9 broker lacks request 351, which ours answers" if name in NEED_351 else "passed"


MQADMIN: Final = tuple((f"`{name}`", "passed", _by_release_5(name), _MQADMIN_TEST) for name in COMMANDS)

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
