"""Names that topics may have, and the ones that are taken."""

from __future__ import annotations

import pytest

from mqcore.protocol import names
from mqcore.protocol.names import BuiltInTopic, broker_topics, validate_topic

BLANK = "The specified topic is blank."
ILLEGAL = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
LONG = "The specified topic is longer than topic max length."


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a|b-c_D9", "x" * 127])
def test_usual_names_are_allowed(topic: str) -> None:
    assert validate_topic(topic) is None


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", BLANK),
        (" \t", BLANK),
        ("a b", ILLEGAL),
        ("a\n", ILLEGAL),
        ("主题", ILLEGAL),
        ("a@b", ILLEGAL),
        ("x" * 128, LONG),
        ("!" * 128, ILLEGAL),
    ],
)
def test_other_names_are_refused_in_the_broker_s_words(topic: str, remark: str) -> None:
    assert validate_topic(topic) == remark


def test_forbidden_topics_are_system_topics() -> None:
    assert names.FORBIDDEN_TOPICS < names.SYSTEM_TOPICS


@pytest.mark.parametrize("topic", ["TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_anything"])
def test_system_topics_that_clients_may_send_to(topic: str) -> None:
    assert names.is_system_topic(topic)
    assert not names.is_forbidden_topic(topic)


def test_a_broker_s_own_topics_are_system_topics_there() -> None:
    assert not names.is_system_topic("DefaultCluster")
    assert names.is_system_topic("DefaultCluster", {"DefaultCluster"})


def test_names_of_derived_topics() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.reply_topic("C") == "C_REPLY_TOPIC"
    assert names.is_retry_topic("%RETRY%g")
    assert names.is_dlq_topic("%DLQ%g")
    assert names.is_lmq("%LMQ%q")
    assert not names.is_retry_topic("RETRY")


def test_a_broker_starts_with_the_built_in_topics() -> None:
    assert {topic.name: (topic.queue_count, topic.perm) for topic in broker_topics("C", "b")} == {
        "TBW102": (8, 7),
        "SELF_TEST_TOPIC": (1, 6),
        "BenchmarkTest": (1024, 6),
        "C": (16, 7),
        "b": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "C_REPLY_TOPIC": (1, 6),
    }


def test_settings_of_a_broker_change_its_built_in_topics() -> None:
    topics = broker_topics(
        "C",
        "b",
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
    )
    assert BuiltInTopic("C", 16, 1) in topics
    assert BuiltInTopic("b", 1, 1) in topics
    assert BuiltInTopic("RMQ_SYS_TRACE_TOPIC", 1, 6) in topics
    assert "TBW102" not in {topic.name for topic in topics}


def test_every_broker_has_the_built_in_groups() -> None:
    assert {group.name for group in names.BUILT_IN_GROUPS} == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
