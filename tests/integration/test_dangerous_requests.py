"""No request makes a broker or a name server run something, or write outside its directories.

Each test is one way in that was found in a broker of this kind; what counts is the effect, not the code of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.config import SETTINGS, Kind, Program, format_properties, parse_properties
from tests.rigs import MqcoreBroker, wire

# What no request may change, by the ends of their names: where files lie, who is talked to, what is loaded.
LEADS_OUTSIDE = ("path", "dir", "home", "addr", "ip1", "ip2", "domain", "port", "host", "plugin", "provider", "target")
CLIMBING = [
    "../../escaped",
    "..",
    ".",
    "/escaped",
    "a/../../escaped",
    "a\x00b",
    "a\nb",
    "..\\escaped",
    "%2e%2e/escaped",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def broker(root: Path) -> Iterator[MqcoreBroker]:
    with MqcoreBroker(root / "store", {"autoCreateTopicEnable": "true"}) as running:
        yield running


def outside(root: Path) -> set[str]:
    """What lies beside the store, its tables apart: the configuration, the log, and nothing else."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_relative_to(root / "store")}


def commands(broker: MqcoreBroker) -> list[list[str]]:
    """The command lines of all that runs below the broker process."""
    return sorted(child.cmdline() for child in psutil.Process(broker.pid).children(recursive=True))


def settings_of(broker: MqcoreBroker) -> dict[str, str]:
    return parse_properties(wire.call(broker.broker_address, RequestCode.GET_BROKER_CONFIG).body.decode())


def name_server_settings_of(broker: MqcoreBroker) -> dict[str, str]:
    return parse_properties(wire.call(broker.name_server, RequestCode.GET_NAMESRV_CONFIG).body.decode())


def update(address: str, code: RequestCode, text: str) -> wire.Answer:
    return wire.call(address, code, body=text.encode())


def hostile(root: Path, key: str) -> str:
    return f"{root}/escaped-by-{key}; touch {root}/escaped-by-{key}; `touch {root}/escaped-by-{key}`"


def test_no_setting_that_leads_outside_is_marked_as_one_to_change() -> None:
    leading = [row.key for row in SETTINGS if row.changeable and row.key.lower().endswith(LEADS_OUTSIDE)]
    assert leading == []
    words = [row.key for row in SETTINGS if row.changeable and row.kind is Kind.STR]
    assert words == ["deleteWhen", "logLevels", "quotas"], (
        "each text that may be changed is looked at here: its values are refused but for hours, levels and rates"
    )


@pytest.mark.parametrize("given", ["deleteWhen=/etc", "logLevels=/etc/passwd=DEBUG", "logLevels=LOUD", "quotas=/etc"])
def test_a_text_that_may_be_changed_is_refused_unless_it_is_of_its_form(broker: MqcoreBroker, given: str) -> None:
    before = settings_of(broker)
    answer = update(broker.broker_address, RequestCode.UPDATE_BROKER_CONFIG, given)
    assert answer.code != ResponseCode.SUCCESS
    assert given.partition("=")[0] in (answer.remark or "")
    assert settings_of(broker) == before


def test_cve_2023_33246_settings_reach_no_shell(broker: MqcoreBroker, root: Path) -> None:
    before, files, running = settings_of(broker), outside(root), commands(broker)
    attack = format_properties({"filterServerNums": "1", "rocketmqHome": f"-c $@|sh . echo touch {root}/escaped;"})
    answer = update(broker.broker_address, RequestCode.UPDATE_BROKER_CONFIG, attack)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert (settings_of(broker), outside(root), commands(broker)) == (before, files, running)


def test_no_text_among_the_settings_of_a_broker_changes(broker: MqcoreBroker, root: Path) -> None:
    before, files, written = settings_of(broker), outside(root), (root / "store.mqcore/broker.conf").read_bytes()
    for row in SETTINGS:
        if row.kind in (Kind.STR, Kind.ENUM) and Program.BROKER in row.programs:
            for key in row.properties:
                value = hostile(root, key)
                answer = update(broker.broker_address, RequestCode.UPDATE_BROKER_CONFIG, f"{key}={value}")
                assert answer.code != ResponseCode.SUCCESS, key
                assert settings_of(broker) == before, key
    assert outside(root) == files
    assert (root / "store.mqcore/broker.conf").read_bytes() == written


def test_one_forbidden_key_among_allowed_ones_changes_none(broker: MqcoreBroker, root: Path) -> None:
    before = settings_of(broker)
    mixed = f"fileReservedTime=99\nstorePathRootDir={root}/escaped\n"
    answer = update(broker.broker_address, RequestCode.UPDATE_BROKER_CONFIG, mixed)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "storePathRootDir" in (answer.remark or "")
    assert settings_of(broker) == before


@pytest.mark.parametrize("value", ["04\\nrocketmqHome=/escaped", "04\\u000arocketmqHome=/escaped", "04\rlistenPort=1"])
def test_no_value_becomes_a_line_of_its_own_in_the_file(broker: MqcoreBroker, root: Path, value: str) -> None:
    before = parse_properties((root / "store.mqcore/broker.conf").read_text())
    update(broker.broker_address, RequestCode.UPDATE_BROKER_CONFIG, f"deleteWhen={value}")
    after = parse_properties((root / "store.mqcore/broker.conf").read_text())
    assert after.keys() - {"deleteWhen"} == before.keys() - {"deleteWhen"}
    assert {key: text for key, text in after.items() if key != "deleteWhen"} == before


def test_cve_2023_37582_a_name_server_writes_nowhere_else(broker: MqcoreBroker, root: Path) -> None:
    before, files = name_server_settings_of(broker), outside(root)
    for key in ("configStorePath", "configStorePathName", "kvConfigPath", "rocketmqHome", "bindAddress"):
        attack = format_properties({key: f"{root}/escaped", "productEnvName": "* * * * * root touch /escaped"})
        update(broker.name_server, RequestCode.UPDATE_NAMESRV_CONFIG, attack)
        assert name_server_settings_of(broker) == before, key
    assert outside(root) == files


@pytest.mark.parametrize("name", CLIMBING)
def test_cve_2019_17572_no_name_becomes_a_path(broker: MqcoreBroker, root: Path, name: str) -> None:
    files = outside(root)
    send = {
        "producerGroup": "P", "topic": name, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false",
    }  # fmt: skip
    create = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    with_places = {"consumerGroup": name, "topic": name, "queueId": "0", "commitOffset": "5"}
    group = json.dumps({"groupName": name, "retryQueueNums": 1, "consumeEnable": True}).encode()
    answers = [
        wire.call(broker.broker_address, RequestCode.SEND_MESSAGE, send, b"escaped"),
        wire.call(broker.broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC, create),
        wire.call(broker.broker_address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group),
        wire.call(broker.broker_address, RequestCode.UPDATE_CONSUMER_OFFSET, with_places),
    ]
    assert [answer.code == ResponseCode.SUCCESS for answer in answers[:2]] == [False, False]
    wire.call(broker.broker_address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
    wire.call(broker.broker_address, RequestCode.CLEAN_UNUSED_TOPIC)
    wire.call(broker.name_server, RequestCode.PUT_KV_CONFIG, {"namespace": name, "key": name, "value": name})
    assert outside(root) == files
    queues = root / "store" / "consumequeue"
    assert not queues.exists() or all("escaped" not in path.name for path in queues.rglob("*"))
    assert wire.call(broker.broker_address, RequestCode.GET_BROKER_RUNTIME_INFO).code == ResponseCode.SUCCESS


def test_what_is_known_of_a_store_survives_a_restart_after_all_this(broker: MqcoreBroker, root: Path) -> None:
    files, before = outside(root), settings_of(broker)
    broker.restart()
    assert outside(root) == files
    assert settings_of(broker) == before


def test_a_request_of_no_known_kind_is_refused_and_has_no_effect(broker: MqcoreBroker, root: Path) -> None:
    files, running = outside(root), commands(broker)
    for code in (0, 1, 301, 302, 303, 999, 9999, -1, 2**31 - 1):
        answer = wire.call(
            broker.broker_address, code, {"filterClass": "x", "requestFilterClassName": "x"}, b"class X {}"
        )
        assert answer.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR), code
    assert (outside(root), commands(broker)) == (files, running)
