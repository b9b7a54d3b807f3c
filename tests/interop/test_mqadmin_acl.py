"""mqadmin's commands for access control, with keys in tools.yml: the same words and files at both brokers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mqcore.client import Client, Message
from tests.rigs import maven
from tests.rigs.apache import ApacheServer
from tests.rigs.mqadmin import Mqadmin
from tests.rigs.mqcore_broker import MqcoreBroker

KEYS = """
accounts:
- accessKey: operator
  secretKey: operator-secret
  admin: true
- accessKey: changing
  secretKey: changing-secret
  topicPerms:
  - Old=PUB
"""
TOOLS = "accessKey: operator\nsecretKey: operator-secret\n"
CLUSTER = ("-c", "DefaultCluster")
LISTING = "getAccessConfigSubCommand"
COMMANDS: list[tuple[str, ...]] = [
    ("clusterAclConfigVersion", *CLUSTER),
    ("updateAclConfig", *CLUSTER, "-a", "newcomer", "-s", "newcomer-secret", "-i", "DENY", "-u", "SUB", "-m", "false",
     "-t", "TopicA=PUB,TopicB=SUB", "-g", "GroupA=SUB", "-w", "10.0.0.*"),
    ("updateAclConfig", *CLUSTER, "-a", "changing", "-s", "other-secret", "-i", "PUB|SUB", "-m", "true"),
    ("updateAclConfig", *CLUSTER, "-a", "newcomer", "-s", "newcomer-secret", "-t", "TopicA"),
    ("updateAclConfig", *CLUSTER, "-a", "newcomer", "-s", "newcomer-secret", "-g", "GroupA=ALL"),
    ("updateGlobalWhiteAddr", *CLUSTER, "-g", "10.10.10.*,192.168.0.1-9"),
    ("deleteAclConfig", *CLUSTER, "-a", "changing"),
    ("deleteAclConfig", *CLUSTER, "-a", "nobody-there"),
    ("updateAclConfig", *CLUSTER, "-a", "last-one", "-s", "last-secret", "-m", "true"),
]  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if missing := maven.missing_tools():
        pytest.skip(missing)
    return tmp_path_factory.mktemp("acl")


@pytest.fixture(scope="module")
def mqadmin(directory: Path) -> Iterator[Mqadmin]:
    with Mqadmin("4.9.8", directory).warm() as made:
        (directory / "mqadmin-4.9.8" / "conf" / "tools.yml").write_text(TOOLS)
        yield made


def put_keys(home: Path) -> Path:
    (home / "conf").mkdir(parents=True)
    file = home / "conf" / "plain_acl.yml"
    file.write_text(KEYS)
    return file


@pytest.fixture(scope="module")
def ours(directory: Path) -> Iterator[tuple[MqcoreBroker, Path]]:
    file = put_keys(directory / "home")
    properties = {"aclEnable": "true", "rocketmqHome": str(directory / "home")}
    with MqcoreBroker(directory / "ours", properties) as broker:
        yield broker, file


@pytest.fixture(scope="module")
def theirs(directory: Path) -> Iterator[tuple[ApacheServer, Path]]:
    file = put_keys(directory / "theirs.apache")
    with ApacheServer("4.9.8", directory / "theirs", {"aclEnable": "true"}, alters_name_server=True) as server:
        yield server, file


def normalised(text: str, broker: MqcoreBroker | ApacheServer, file: Path) -> str:
    """What was printed without what must differ: addresses, paths, times; and Java's way to a thrown exception."""
    text = text.replace(broker.broker_address, "BROKER").replace(str(file), "FILE")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"timestamp[=\": ]+\d+", "timestamp", text)
    text = re.sub(r"@[0-9a-f]+\b", "@OBJECT", text)
    text = re.sub(r"secretKey=\S+ cannot", "secretKey=*** cannot", text)
    text = re.sub(r"^\s+at .*$", "", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def known(file: Path) -> Any:
    content = yaml.safe_load(file.read_text())
    for version in content["dataVersion"]:
        version.pop("timestamp")
    # RocketMQ's file has its sections in the order of Java's hashes.
    return dict(sorted(content.items()))


def test_the_commands_print_and_write_what_they_do_at_apaches_broker(
    mqadmin: Mqadmin, ours: tuple[MqcoreBroker, Path], theirs: tuple[ApacheServer, Path]
) -> None:
    printed = []
    for broker, file in (ours, theirs):
        outputs = mqadmin.run_all(broker.name_server, COMMANDS)
        printed.append([normalised(output.text, broker, file) for output in outputs])
    for command, our, their in zip(COMMANDS, *printed, strict=True):
        assert our == their, command
    assert known(ours[1]) == known(theirs[1])
    assert "operator" in ours[1].read_text()


def test_an_account_that_was_made_sends_at_once(mqadmin: Mqadmin, ours: tuple[MqcoreBroker, Path]) -> None:
    broker, _ = ours
    mqadmin.run_all(
        broker.name_server,
        [
            ("updateTopic", *CLUSTER, "-t", "TopicC", "-r", "1", "-w", "1"),
            ("updateAclConfig", *CLUSTER, "-a", "sender-1", "-s", "sender-secret", "-t", "TopicC=PUB"),
        ],
    )
    with Client(f"rmq://sender-1:sender-secret@{broker.name_server}") as mq, mq.producer("senders") as producer:
        producer.send(Message("TopicC", b"x"))


def test_an_account_that_is_no_admin_changes_nothing(
    directory: Path, ours: tuple[MqcoreBroker, Path], mqadmin: Mqadmin
) -> None:
    broker, file = ours
    mqadmin.run(broker.name_server, "updateAclConfig", *CLUSTER, "-a", "no-admin", "-s", "no-admin-secret", "-i", "PUB")
    other = Mqadmin("4.9.8", directory / "other")
    (directory / "other" / "mqadmin-4.9.8" / "conf" / "tools.yml").write_text(
        "accessKey: no-admin\nsecretKey: no-admin-secret\n"
    )
    before = file.read_text()
    printed = other.run(
        broker.name_server, "updateAclConfig", *CLUSTER, "-a", "no-admin", "-s", "hidden-secret", "-m", "true"
    )
    assert "Need admin permission for request code=50" in printed.text
    assert file.read_text() == before


@pytest.mark.slow
def test_accounts_are_listed_for_those_who_look_at_them_with_the_dashboard(
    directory: Path, ours: tuple[MqcoreBroker, Path]
) -> None:
    """Its release 1.0.0 asks with the tools of 4.9.0, which have a command for that, too."""
    broker, _ = ours
    home = directory / "dashboard"
    tools = Mqadmin("4.9.0", home)
    keys = home / "mqadmin-4.9.0" / "conf" / "tools.yml"
    keys.write_text(TOOLS)
    listed = tools.run(broker.name_server, LISTING, *CLUSTER).text
    assert re.search(r"accessKey\s*:\s*operator", listed), listed
    assert re.search(r"secretKey\s*:\s*\*{8}", listed), listed
    assert "operator-secret" not in listed
    tools.run(broker.name_server, "updateAclConfig", *CLUSTER, "-a", "looks-on", "-s", "looks-on-secret", "-i", "SUB")
    keys.write_text("accessKey: looks-on\nsecretKey: looks-on-secret\n")
    assert "Need admin permission for request code=54" in tools.run(broker.name_server, LISTING, *CLUSTER).text
