"""The rows of docs/errors.md: whatever a broker or a name server answers with is written up there."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from mqcore import refusals
from mqcore.admin.command_line import cli
from mqcore.broker import remarks
from mqcore.broker.filters import not_supported_remark
from mqcore.codes import PULL_CODES, ResponseCode
from mqcore.protocol.names import validate_topic

ROOT = Path(__file__).resolve().parents[2]
ANSWERING = ("mqcore/broker", "mqcore/namesrv", "mqcore/_fast/send")
SERVED = {ResponseCode.SUCCESS, *PULL_CODES}

SAID = {
    (17, remarks.topic_not_exist("T")): "topic-does-not-exist",
    (17, "No topic in this broker. topic: T"): "topic-does-not-exist",
    (26, remarks.group_not_exist("G")): "group-does-not-exist",
    (24, "the consumer's group info not exist"): "group-is-not-known-yet",
    (24, "the consumer's subscription not exist, a and b differ"): "subscription-is-not-known",
    (25, "the consumer's subscription not latest"): "subscription-has-changed",
    (1, remarks.system_topic("SCHEDULE_TOPIC_XXXX")): "topic-is-reserved",
    (1, validate_topic("a b") or ""): "name-is-illegal",
    (1, validate_topic("a" * 128) or ""): "name-is-illegal",
    (1, "request queueId[9] is illegal, TopicConfig [...] Producer: 127.0.0.1:1"): "queue-does-not-exist",
    (1, not_supported_remark("SQL92")): "filter-type-is-not-supported",
    (16, remarks.sending_forbidden("127.0.0.1")): "sending-is-forbidden",
    (16, remarks.transaction_forbidden("127.0.0.1")): "sending-is-forbidden",
    (16, "the topic[T] pulling message is forbidden"): "pulling-is-forbidden",
    (16, "subscription group no permission, G"): "group-may-not-consume",
    (2, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while"): "broker-is-busy",
    (1, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"): "put-lock-is-kept",
    (14, "service not available now. It may be caused by one of the following reasons"): "store-takes-no-message",
    (14, "this broker is no longer the master of its group"): "broker-is-no-master",
    (1, "what nobody has thought of"): "request-failed",
}


def test_each_code_that_is_answered_is_written_up() -> None:
    given = {
        name
        for folder in ANSWERING
        for path in (ROOT / folder).rglob("*.py*")
        if path.suffix in (".py", ".pyx")
        for name in re.findall(r"\bResponseCode\.([A-Z_0-9]+)", path.read_text())
    }
    written = {row.code.name for row in refusals.REFUSALS}
    assert len(given) > 20
    assert given - {code.name for code in SERVED} - written == set()
    assert {row.code for row in refusals.REFUSALS} & SERVED == set()


@pytest.mark.parametrize(("code", "remark"), SAID)
def test_a_remark_leads_to_its_reason(code: int, remark: str) -> None:
    row = refusals.refusal_of(code, remark)
    assert row is not None
    assert row.anchor == SAID[code, remark]


def test_what_refuses_nothing_has_no_page() -> None:
    assert refusals.refusal_of(ResponseCode.SUCCESS, "") is None


def test_each_link_in_a_remark_leads_to_a_heading() -> None:
    headings = re.findall(r"^## (.+)$", refusals.PAGE.read_text(), re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    assert {row.anchor for row in refusals.REFUSALS} == anchors
    assert len(anchors) == len(refusals.REFUSALS)
    assert remarks.topic_not_exist("T").endswith("\nSee docs/errors.md#topic-does-not-exist for further details.")


def test_the_page_names_commands_that_there_are() -> None:
    named = re.findall(r"`mqcore ([a-z]+)(?: ([a-z]+))?", refusals.page())
    assert named
    for first, second in named:
        command = cli.commands[first]
        assert not second or (isinstance(command, click.Group) and second in command.commands), (first, second)


def test_the_page_is_what_the_rows_say() -> None:
    assert refusals.PAGE.read_text() == refusals.page()
