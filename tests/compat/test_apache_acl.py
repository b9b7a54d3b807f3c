"""Access control beside Apache's own: random accounts, addresses and requests, the same answers in the same words."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mqcore.broker.security.acl_files import AclFiles
from mqcore.broker.security.signature import SIGNATURE, UNIQUE_KEY_QUERY, sign, signed_content
from mqcore.broker.security.tables import AclTables, make_tables
from mqcore.broker.security.validator import AclError, validate
from mqcore.codes import RequestCode as Code
from mqcore.errors import ConfigError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from tests.rigs import maven
from tests.rigs.acl_referee import AclReferee

pytestmark = pytest.mark.compat

NO_PERMISSION = "No default permission for "
FILES = 40
REQUESTS = 60
KEYS = [f"account-{number}" for number in range(5)]
TOPICS = ["TopicA", "TopicB", "%RETRY%GroupA", "RMQ_SYS_TRACE_TOPIC", "Ümlaut", "AaAa", "BBBB"]
GROUPS = ["GroupA", "GroupB", "AaBB", "%RETRY%GroupA"]
PERMS = ["DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB", " PUB ", "pub", "ANY", "", "PUB | SUB"]
ADDRESSES = [
    *("10.10.103.7", "10.10.103.77", "10.1.2.3", "192.168.0.255", "127.0.0.1"),
    *("0:0:0:0:0:0:0:1", "2001:db8:1:2:3:4:5:6", "fe80:0:0:0:1:2:3:abcd", "1:0:0:0:0:0:5:ff"),
]
GOOD_PATTERNS = [
    *(
        "10.10.103.*",
        "10.10.103.7",
        "10.10.*.*",
        "10.*.*.*",
        "10.10.103.{7,8}",
        "10.10.100-110.*",
        "10.10.103.1-9",
        "*",
    ),
    *("192.168.0.1-255", "10.1.2.3,127.0.0.1", "::1", "1::{1,2}", "2001:db8:1:2:3:4:5:*", "fe80:0:0:0:1:2:3:0-ffff"),
    *("2001:db8:1:2:3:4:0-f:*", "1::1-5:*", "1::5:*", "1::ff", "0:0:0:0:0:0:0:1", "", "   ", "10.x.*.*", "*.*.*.*"),
    *("10.10.*.7", "1.2.3.4", "*:*:*:*:*:*:*:*", "10.10.103.7,::1", "FE80::1:2:3:ABCD", "fe80::1:2:3:{abcd,1}"),
]
BAD_PATTERNS = [
    *("10.10.103.256", "10.10.103", "10.10.103.{7", "{1,2}", "10.10.{1,2}", "10.10.9-1.*", "10.10.103.1-", "a.b.c.*"),
    *("10.10.103.-5", "10.10.103.1-256", "01.2.3.4", " 1.2.3.4", "1.2.3.4, 5.6.7.8", "1::*:1", "1::1-5:2", "1::fffff"),
    *("1::1::1", "::g", "1:2:3", "10.9-11.*", "x.10.*.*", "1::10000-5", "10.10.103.{7,x}", ":1", "1:", "localhost"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    (home / "conf" / "acl").mkdir(parents=True)
    return home


@pytest.fixture(scope="module")
def referee(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclReferee]:
    if missing := maven.missing_tools():
        pytest.skip(missing)
    with AclReferee("4.9.8", home, tmp_path_factory.mktemp("referee") / "log") as one:
        yield one


def put(home: Path, content: Any) -> None:
    (home / "conf" / "plain_acl.yml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))


def ours(home: Path) -> AclTables | str:
    try:
        return make_tables(AclFiles(home, "conf/plain_acl.yml").read_all())
    except ConfigError as error:
        return str(error)


def decide(tables: AclTables, request: RemotingCommand, address: str) -> str | None:
    try:
        validate(tables, request, address)
    except AclError as error:
        return str(error.args[1])
    return None


def random_account(chance: random.Random, key: str) -> dict[str, Any]:
    account: dict[str, Any] = {"accessKey": key, "secretKey": f"secret of {key}"}
    if chance.random() < 0.3:
        account["whiteRemoteAddress"] = chance.choice(GOOD_PATTERNS)
    if chance.random() < 0.6:
        account["admin"] = chance.choice([True, False, False, "true", "1", 0])
    for name in ("defaultTopicPerm", "defaultGroupPerm"):
        if chance.random() < 0.7:
            account[name] = chance.choice(PERMS)
    for name, resources in (("topicPerms", TOPICS), ("groupPerms", GROUPS)):
        if chance.random() < 0.6:
            chosen = chance.sample(resources, chance.randrange(4))
            account[name] = [
                f"{resource}{chance.choice(['=', ' = '])}{chance.choice(PERMS) or 'DENY'}" for resource in chosen
            ]
    return account


def random_file(chance: random.Random) -> dict[str, Any]:
    return {
        "globalWhiteRemoteAddresses": [chance.choice(GOOD_PATTERNS[1:7])] if chance.random() < 0.2 else [],
        "accounts": [random_account(chance, key) for key in chance.sample(KEYS, 4)],
    }


def heart_beat(chance: random.Random) -> bytes:
    consumers = [
        ConsumerData(
            group, subscription_data_set=[SubscriptionData(t) for t in chance.sample(TOPICS, chance.randrange(4))]
        )
        for group in chance.sample(GROUPS, chance.randrange(3))
    ]
    return HeartbeatData("client", consumer_data_set=consumers).encode()


def random_request(chance: random.Random) -> RemotingCommand:
    topic, group = chance.choice(TOPICS), chance.choice(GROUPS)
    code, fields = chance.choice(
        [
            (Code.SEND_MESSAGE, {"topic": topic, "group": group, "queueId": "1"}),
            (Code.SEND_MESSAGE_V2, {"b": topic, "a": group, "e": "1", "i": "k\x01v\x02"}),
            (Code.SEND_MESSAGE_V2, {"b": topic}),
            (Code.SEND_BATCH_MESSAGE, {"b": topic, "a": group}),
            (Code.CONSUMER_SEND_MSG_BACK, {"group": group, "offset": "1", "delayLevel": "1"}),
            (Code.PULL_MESSAGE, {"topic": topic, "consumerGroup": group}),
            (Code.LITE_PULL_MESSAGE, {"topic": topic, "consumerGroup": group}),
            (Code.QUERY_MESSAGE, {"topic": topic, "key": "k", UNIQUE_KEY_QUERY: "true"}),
            (Code.HEART_BEAT, {"ReqT": "0"}),
            (Code.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": group}),
            (Code.UNREGISTER_CLIENT, {"clientID": "c"}),
            (Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}),
            (
                Code.UPDATE_CONSUMER_OFFSET,
                {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "1"},
            ),
            (Code.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": "0"}),
            (Code.END_TRANSACTION, {"producerGroup": group}),
            (Code.UPDATE_AND_CREATE_TOPIC, {"topic": topic}),
            (Code.UPDATE_BROKER_CONFIG, {}),
            (Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": group}),
            (Code.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "new"}),
        ]
    )
    body = heart_beat(chance) if code == Code.HEART_BEAT else chance.randbytes(chance.randrange(20))
    fields = dict(fields)
    if chance.random() < 0.95:
        key = fields["AccessKey"] = chance.choice(KEYS)
        if chance.random() < 0.3:
            fields["SecurityToken"] = "töken"
        fields[SIGNATURE] = sign(f"secret of {key}".encode(), signed_content(fields, body, SIGNATURE, UNIQUE_KEY_QUERY))
        damage = chance.random()
        if damage < 0.05:
            body += b" "
        elif damage < 0.1:
            fields["added"] = "later"
        elif damage < 0.13:
            del fields[SIGNATURE]
    return RemotingCommand(
        code=code, opaque=7, ext_fields=fields or None, body=body, serialize_type=chance.choice([0, 1])
    )


def test_random_requests_get_apaches_answers(home: Path, referee: AclReferee, chance: random.Random) -> None:
    seen: set[str] = set()
    for _ in range(FILES):
        content = random_file(chance)
        put(home, content)
        assert referee.load() is None
        tables = ours(home)
        assert isinstance(tables, AclTables), tables
        for _ in range(REQUESTS):
            request, address = random_request(chance), chance.choice(ADDRESSES)
            wanted = referee.judge(address, request.encode()[4:])
            got = decide(tables, request, address)
            if request.code == Code.HEART_BEAT and got and wanted and got.startswith(NO_PERMISSION):
                # Of several that are missing Java names any one: its sets have no order.
                got, wanted = NO_PERMISSION, wanted[: len(NO_PERMISSION)]
            assert got == wanted, (content, request, address)
            seen.add((got or "served")[:12])
    assert len(seen) >= 6, seen


@pytest.mark.parametrize("pattern", GOOD_PATTERNS)
def test_a_pattern_lets_in_whom_apaches_does(home: Path, referee: AclReferee, pattern: str) -> None:
    put(home, {"globalWhiteRemoteAddresses": [pattern], "accounts": []})
    assert referee.load() is None
    tables = ours(home)
    assert isinstance(tables, AclTables), tables
    request = RemotingCommand(code=Code.UPDATE_BROKER_CONFIG, opaque=1)
    for address in ADDRESSES:
        assert decide(tables, request, address) == referee.judge(address, request.encode()[4:]), address


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_a_bad_pattern_is_refused_by_both(home: Path, referee: AclReferee, pattern: str) -> None:
    put(home, {"globalWhiteRemoteAddresses": [pattern]})
    assert referee.load() is not None
    error = ours(home)
    assert isinstance(error, str)
    assert error.startswith(
        f"{home}/conf/plain_acl.yml: globalWhiteRemoteAddresses 1: got {pattern!r}, wanted an address"
    )


@pytest.mark.parametrize("pattern", ["*.1.1.1", "10.10.103.0-0", "*:1:2:3:4:5:6:7", "0-5.1.1.1"])
def test_what_makes_apaches_stumble_over_every_client_is_refused(home: Path, referee: AclReferee, pattern: str) -> None:
    put(home, {"globalWhiteRemoteAddresses": [pattern]})
    complaint = referee.load()
    if complaint is None:
        wanted = referee.judge("10.10.103.7", RemotingCommand(code=Code.HEART_BEAT, opaque=1).encode()[4:])
        assert wanted != "No accessKey is configured"
    assert isinstance(ours(home), str)


@pytest.mark.parametrize(
    "scalar",
    ["12345678", "012345678", "012345670123", "0x12345678", "1_000_000_0", "123:30:45:10", "0b101010101010101010101010",
     "'12345678'", "-12345678", "+12345678", "trueish1", "12345678901234567890123"],
)  # fmt: skip
def test_a_key_that_is_a_number_is_the_text_that_java_makes_of_it(home: Path, referee: AclReferee, scalar: str) -> None:
    put(home, f"accounts:\n- accessKey: account-0\n  secretKey: {scalar}\n  admin: true\n")
    assert referee.load() is None
    tables = ours(home)
    assert isinstance(tables, AclTables), tables
    fields = {"AccessKey": "account-0"}
    fields[SIGNATURE] = sign(tables.accounts["account-0"].secret_key, signed_content(fields, b""))
    request = RemotingCommand(code=Code.UPDATE_BROKER_CONFIG, opaque=1, ext_fields=fields)
    assert referee.judge("1.1.1.1", request.encode()[4:]) is None


@pytest.mark.parametrize(
    "text",
    ["accounts:\n- accessKey: short\n  secretKey: 12345678\n", "accounts:\n- accessKey: account-0\n",
     "accounts:\n- accessKey: account-0\n  secretKey: 12345678\n  topicPerms:\n  - TopicA\n", "accounts: [", "- a\n",
     "accounts:\n- accessKey: account-0\n  secretKey: 12345678\n  admin: perhaps\n", "accounts: 5\n"],
)  # fmt: skip
def test_a_file_that_apache_cannot_read_stops_both(home: Path, referee: AclReferee, text: str) -> None:
    put(home, text)
    assert referee.load() is not None
    error = ours(home)
    assert isinstance(error, str)
    assert error.startswith(f"{home}/conf/plain_acl.yml: ")
    assert "wanted" in error
    assert "12345678" not in error


def test_names_are_found_whatever_their_capitals(home: Path, referee: AclReferee) -> None:
    put(home, "accounts:\n- AccessKey: account-0\n  secret_key: 12345678\n  default-topic-perm: PUB\n")
    assert referee.load() is None
    tables = ours(home)
    assert isinstance(tables, AclTables), tables
    fields = {"AccessKey": "account-0", "b": "TopicA"}
    fields[SIGNATURE] = sign(b"12345678", signed_content(fields, b""))
    request = RemotingCommand(code=Code.SEND_MESSAGE_V2, opaque=1, ext_fields=fields)
    assert decide(tables, request, "1.1.1.1") is None
    assert referee.judge("1.1.1.1", request.encode()[4:]) is None
