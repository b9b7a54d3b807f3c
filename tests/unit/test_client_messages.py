"""What may be sent, and what is refused before anything is sent."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mqcore.client.errors import (
    BrokerNotFoundError,
    ClientStateError,
    InvalidMessageError,
    NoRouteError,
    Retry,
    SendFailedError,
)
from mqcore.client.model.messages import Message, ReceivedMessage
from mqcore.client.model.subscription import Sql, subscription_data, tags_wanted, topics_with_expressions
from mqcore.client.model.validators import check_group, check_message, check_new_topic, check_topic
from mqcore.errors import ArgumentError, ConfigError
from mqcore.protocol.message import MessageExt, MessageQueue


def test_a_message_carries_tag_keys_and_properties_over_the_wire() -> None:
    message = Message(
        "T", b"x", tag="a", keys=["k1", "k2"], properties={"color": "red"}, delay_level=3, wait_store_ok=False
    )
    wanted = {"color": "red", "TAGS": "a", "KEYS": "k1 k2", "DELAY": "3", "WAIT": "false"}
    assert message.wire_properties() == wanted


@pytest.mark.parametrize(
    ("delay", "level"),
    [
        (0, 0),
        (1, 1),
        (5.0, 2),
        (timedelta(seconds=30), 4),
        (timedelta(minutes=5), 9),
        (600, 14),
        (timedelta(hours=2), 18),
    ],
)
def test_a_delay_is_a_level_said_in_time(delay: timedelta | float, level: int) -> None:
    message = Message("T", b"x", delay=delay)
    assert message.delay_level == level
    assert message == Message("T", b"x", delay_level=level)
    assert replace(message, delay_level=0).delay_level == 0


@pytest.mark.parametrize(
    ("given", "properties"),
    [
        ({"delay": 7}, {"TIMER_DELAY_MS": "7000"}),
        ({"delay": 0.0015}, {"TIMER_DELAY_MS": "2"}),
        ({"delay": timedelta(days=2, milliseconds=1)}, {"TIMER_DELAY_MS": "172800001"}),
        ({"deliver_at": 1_700_000_000_123}, {"TIMER_DELIVER_MS": "1700000000123"}),
        ({"deliver_at": datetime.fromtimestamp(1_700_000_000, UTC)}, {"TIMER_DELIVER_MS": "1700000000000"}),
    ],
)
def test_any_other_time_takes_a_timer(given: dict[str, Any], properties: dict[str, str]) -> None:
    message = Message("T", b"x", properties={"color": "red"}, **given)
    assert message.properties == {"color": "red"} | properties
    assert message.delay_level == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"delay": 5, "delay_level": 2}, "give one of delay, deliver_at and delay_level"),
        ({"delay": 7, "deliver_at": 1}, "give one of delay, deliver_at and delay_level"),
        ({"delay": -1}, "delay: got -1 s, wanted more than 0"),
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone"),
    ],
)
def test_a_time_that_says_nothing_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Message("T", b"x", **given)


def test_a_plain_message_has_no_properties() -> None:
    assert Message("T", b"x").wire_properties() == {}


def test_a_message_shows_the_begin_of_a_large_body() -> None:
    assert repr(Message("T", b"x", tag="a")).startswith("Message(topic='T', body=b'x', tag='a', keys=(), ")
    shown = repr(Message("T", bytes(1 << 20)))
    assert "... 1048576 bytes, tag=None" in shown
    assert len(shown) < 600


def test_a_message_cannot_be_changed() -> None:
    message = Message("T", b"x", keys="only")
    assert message.keys == ("only",)
    with pytest.raises(AttributeError):
        message.body = b"y"  # type: ignore[misc]


def test_a_body_is_bytes() -> None:
    assert Message("T", bytearray(b"abc")).body == b"abc"
    with pytest.raises(TypeError, match="encode the text first"):
        Message("T", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["TAGS", "UNIQ_KEY", "DELAY", "RETRY_TOPIC", "CONSUME_START_TIME"])
def test_a_property_of_the_system_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"The Property<{name}> is used by system"):
        Message("T", b"x", properties={name: "1"})


@pytest.mark.parametrize("properties", [{"": "x"}, {" ": "x"}, {"x": ""}, {"x": " "}, {"a\x01b": "x"}, {"a": "x\x02"}])
def test_a_property_that_could_not_be_read_back_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ArgumentError):
        Message("T", b"x", properties=properties)


@pytest.mark.parametrize("topic", ["", " ", "a b", "a.b", "ä", "x" * 128])
def test_an_illegal_topic_is_refused(topic: str) -> None:
    with pytest.raises(ArgumentError):
        check_message(topic, b"x", 10)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC"])
def test_a_topic_that_only_brokers_write_is_refused(topic: str) -> None:
    with pytest.raises(ArgumentError, match=f"Sending message to topic\\[{topic}\\] is forbidden."):
        check_message(topic, b"x", 10)


def test_bodies_have_limits() -> None:
    check_message("%RETRY%g", b"x" * 10, 10)
    with pytest.raises(InvalidMessageError, match="the message body length is zero"):
        check_message("T", b"", 10)
    with pytest.raises(InvalidMessageError, match="over max value, MAX: 10"):
        check_message("T", b"x" * 11, 10)


# What client 4.9.8 says to each.
CHARACTERS = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "The specified topic is blank"),
        (" ", "The specified topic is blank"),
        ("a.b", f"The specified topic[a.b] {CHARACTERS}"),
        ("t\n", f"The specified topic[t\n] {CHARACTERS}"),
        ("x" * 128, "The specified topic is longer than topic max length 127."),
    ],
)
def test_an_illegal_topic_is_refused_in_java_s_words(topic: str, reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_topic(topic)
    assert str(caught.value) == reason


@pytest.mark.parametrize("topic", ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_anything"])
def test_a_topic_of_the_system_cannot_be_made(topic: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_new_topic(topic)
    assert str(caught.value) == f"The topic[{topic}] is conflict with system topic."
    assert check_new_topic("mine") == check_topic("mine") == "mine"


@pytest.mark.parametrize(
    ("group", "reserved", "reason"),
    [
        ("", "DEFAULT_PRODUCER", "the specified group is blank"),
        ("a b", "DEFAULT_PRODUCER", f"the specified group[a b] {CHARACTERS}"),
        ("ä", "DEFAULT_PRODUCER", f"the specified group[ä] {CHARACTERS}"),
        ("x" * 256, "DEFAULT_PRODUCER", "the specified group is longer than group max length 255."),
        (
            "DEFAULT_PRODUCER",
            "DEFAULT_PRODUCER",
            "producerGroup can not equal DEFAULT_PRODUCER, please specify another one.",
        ),
        (
            "DEFAULT_CONSUMER",
            "DEFAULT_CONSUMER",
            "consumerGroup can not equal DEFAULT_CONSUMER, please specify another one.",
        ),
    ],
)
def test_an_illegal_group_is_refused_in_java_s_words(group: str, reserved: str, reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_group(group, reserved)
    assert str(caught.value) == reason
    assert check_group("a|b-c_%9", "DEFAULT_CONSUMER") == "a|b-c_%9"


def test_a_message_that_a_handler_got_is_not_acked() -> None:
    message = ReceivedMessage(MessageExt("T", b"x"), MessageQueue("T", "b", 0))
    with pytest.raises(ClientStateError, match="by returning or raising"):
        message.ack()


class Recorder:
    """Remembers how messages were settled."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def ack(self, message: ReceivedMessage) -> None:
        self.calls.append(("ack", 0))

    def ack_all(self, messages: Sequence[ReceivedMessage]) -> None:
        self.calls.extend(("ack", 0) for _ in messages)

    def nack(self, message: ReceivedMessage, delay_level: int) -> None:
        self.calls.append(("nack", delay_level))


def test_a_message_is_settled_once() -> None:
    recorder = Recorder()
    for settle in ("ack", "nack", "reject"):
        message = ReceivedMessage(MessageExt("T", b"x"), MessageQueue("T", "b", 0), settler=recorder)
        getattr(message, settle)()
        with pytest.raises(ClientStateError, match="has been settled before"):
            message.ack()
    assert recorder.calls == [("ack", 0), ("nack", 0), ("nack", -1)]


def test_a_received_message_shows_what_was_sent() -> None:
    properties = {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "ID", "color": "red"}
    ext = MessageExt("T", b"x", properties=properties, queue_offset=7, reconsume_times=2)
    message = ReceivedMessage(ext, MessageQueue("T", "b", 0))
    assert (message.tag, message.keys, message.msg_id) == ("a", ("k1", "k2"), "ID")
    assert (message.queue_offset, message.reconsume_times, message.properties["color"]) == (7, 2, "red")


def test_topics_may_be_given_in_three_forms() -> None:
    assert topics_with_expressions("A") == {"A": "*"}
    assert topics_with_expressions(["A", "B"]) == {"A": "*", "B": "*"}
    assert topics_with_expressions({"A": "x || y", "B": Sql("n > 3")}) == {"A": "x || y", "B": Sql("n > 3")}


def test_tags_are_compared_by_text() -> None:
    wanted = subscription_data("T", "Aa || c", 5)
    assert (wanted.sub_version, wanted.expression_type, wanted.tags_set) == (5, "TAG", {"Aa", "c"})
    assert tags_wanted(wanted) == {"Aa", "c"}  # BB, with the hash of Aa, is for the client to leave out
    assert tags_wanted(subscription_data("T", "*")) is None


def test_an_sql_expression_is_left_to_the_broker() -> None:
    wanted = subscription_data("T", Sql("n > 3"))
    assert (wanted.expression_type, wanted.sub_string) == ("SQL92", "n > 3")
    assert tags_wanted(wanted) is None


@pytest.mark.parametrize("expression", ["||", " || ", Sql("")])
def test_an_expression_without_anything_in_it_is_refused(expression: str | Sql) -> None:
    with pytest.raises(ConfigError, match="subscription of T"):
        subscription_data("T", expression)


@pytest.mark.parametrize(
    "error",
    [
        NoRouteError("T"),
        BrokerNotFoundError("broker-a"),
        SendFailedError("T", ("broker-a", "broker-b"), 12, 10002, "no answer"),
        Retry(3),
    ],
)
def test_errors_pickle_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)


def test_a_failed_send_says_what_was_tried() -> None:
    error = SendFailedError("T", ("broker-a", "broker-b"), 12, 10002, "no answer")
    assert str(error) == (
        "Send [2] times, still failed, cost [12]ms, Topic: T, BrokersSent: [broker-a, broker-b], code 10002: no answer"
    )
    assert error.client_code == 10002
