"""Attributes of topics: how they are read, kept and refused."""

from __future__ import annotations

import pytest

from mqcore.errors import ProtocolError
from mqcore.protocol.topic_attributes import ATTRIBUTES, changed, parse_changes


def test_a_text_of_changes_is_read_by_signed_names() -> None:
    assert parse_changes("+message.type=FIFO,-reserve.time") == {"+message.type": "FIFO", "-reserve.time": ""}
    assert parse_changes("") == parse_changes(None) == parse_changes(",") == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ("message.type", "delete attribute format is wrong: message.type"),
        ("+message.type", "delete attribute format is wrong: [+]message.type"),
        ("+a=1,+a=2", "key duplication: [+]a"),
    ],
)
def test_a_text_that_is_none_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        parse_changes(text)


def test_a_topic_keeps_plain_names_and_none_when_none_are_left() -> None:
    made = changed(None, {"+message.type": "FIFO", "+queue.type": "SimpleCQ"})
    assert made == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    assert changed(made, {}) == made
    assert changed({"message.type": "FIFO"}, {"+message.type": "DELAY"}) == {"message.type": "DELAY"}
    assert changed({"message.type": "FIFO"}, {"-message.type": ""}) is None
    assert changed(None, {}) is None


@pytest.mark.parametrize(
    ("current", "changes", "complaint"),
    [
        (None, {"-message.type": ""}, "only add attribute is supported while creating topic. key: message.type"),
        ({}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        ({}, {"+queue.type": "SimpleCQ"}, "attempt to update an unchangeable attribute. key: queue.type"),
        ({}, {"+odd": "1"}, "unsupported key: odd"),
        ({}, {"message.type": "FIFO"}, "wrong format key: message.type"),
        ({}, {"+": "FIFO"}, "wrong format key: [+]"),
        ({}, {"+message.type": "FIFO", "-message.type": ""}, "alter duplication key. key: message.type"),
        (None, {"+message.type": "fifo"}, "value is not in set: fifo"),
        (None, {"+queue.type": "BatchCQ"}, "queue.type is SimpleCQ here .queues of batches are not there."),
    ],
)
def test_what_cannot_be_changed_so_is_refused(
    current: dict[str, str] | None, changes: dict[str, str], complaint: str
) -> None:
    before = None if current is None else dict(current)
    with pytest.raises(ProtocolError, match=complaint):
        changed(current, changes)
    assert current == before


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_each_value_that_an_attribute_takes_is_kept(name: str) -> None:
    for value in ATTRIBUTES[name].values:
        assert changed(None, {f"+{name}": value}) == {name: value}
