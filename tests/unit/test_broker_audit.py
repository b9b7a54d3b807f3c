"""Each change that an administrator makes leaves a line: who, from where, what, before and after."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from broker_ports import BrokerRig

from mqcore.broker.audit import CHANGES
from mqcore.broker.processors.table import TABLE
from mqcore.codes import RequestCode
from mqcore.process_log import event_of

TOPIC = {
    "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "order": "false",
}  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path) -> BrokerRig:
    return BrokerRig(tmp_path)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The facts of the lines so far, which are forgotten."""
    found = [event_of(record)[1] for record in caplog.records if record.name == "mqcore.audit"]
    caplog.clear()
    return found


@pytest.fixture(autouse=True)
def is_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mqcore.audit")


async def test_a_topic_is_told_as_it_was_and_as_it_is(rig: BrokerRig, caplog: pytest.LogCaptureFixture) -> None:
    await rig.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC | {"AccessKey": "anna"})
    (line,) = lines(caplog)
    assert (line["request"], line["names"], line["by"], line["answer"]) == (
        "UPDATE_AND_CREATE_TOPIC", ["T"], "anna", 0,
    )  # fmt: skip
    assert line["from"] == f"{rig.client.remote_ip}:{rig.client.remote_port}"
    assert (line["before"], line["after"]["T"]["read_queue_nums"]) == ({"T": None}, 2)
    await rig.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC | {"readQueueNums": "3"})
    (line,) = lines(caplog)
    assert [line[when]["T"]["read_queue_nums"] for when in ("before", "after")] == [2, 3]
    assert line["by"] is None
    await rig.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert lines(caplog)[0]["after"] == {"T": None}


async def test_a_setting_is_told_as_it_was_and_as_it_is(rig: BrokerRig, caplog: pytest.LogCaptureFixture) -> None:
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"traceOn=false\nmaxMessageSize=4194304\n")
    (line,) = lines(caplog)
    assert (line["names"], line["before"], line["after"]) == (
        ["traceOn", "maxMessageSize"], {"traceOn": True}, {"traceOn": False},
    )  # fmt: skip


async def test_what_was_refused_is_told_too(rig: BrokerRig, caplog: pytest.LogCaptureFixture) -> None:
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"listenPort=1\n")
    await rig.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b"no body")
    assert [(line["names"], line["answer"], line["after"]) for line in lines(caplog)] == [
        (["listenPort"], 16, {}), ([], 1, {}),
    ]  # fmt: skip


async def test_nobody_writes_a_line_of_his_own(rig: BrokerRig, caplog: pytest.LogCaptureFixture) -> None:
    forged = "x\n2026-11-23 18:00:00,000 INFO broker mqcore.audit administration"
    await rig.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC | {"AccessKey": forged})
    await rig.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": forged})
    assert [len(record.getMessage().splitlines()) for record in caplog.records if record.name == "mqcore.audit"] == [
        1,
        1,
    ]


async def test_who_only_looks_leaves_no_line(rig: BrokerRig, caplog: pytest.LogCaptureFixture) -> None:
    await rig.ask(RequestCode.GET_BROKER_CONFIG)
    await rig.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert lines(caplog) == []


def test_every_request_of_the_table_that_changes_something_is_among_them() -> None:
    words = ("UPDATE", "DELETE", "RESET", "CLONE", "CLEAN", "CHANGE", "RESUME")
    named = {code for code in TABLE if any(word in RequestCode(code).name for word in words)}
    # What consumers and tools of theirs say as they go, and no administrator.
    assert named - CHANGES.keys() == {RequestCode.UPDATE_CONSUMER_OFFSET}
    assert CHANGES.keys() <= TABLE.keys()
