"""The guard of a send worker: it serves what its twin in the broker process would, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mqcore.broker.security.grants import EVERYBODY, encode_grant, encode_table
from mqcore.broker.security.signature import SIGNATURE, UNIQUE_KEY_QUERY, sign, signed_content
from mqcore.broker.security.tables import AclTables, make_tables
from mqcore.broker.security.validator import AclError, Principal, validate
from mqcore.codes import RequestCode as Code
from mqcore.layout import ACL_GRANT
from mqcore.protocol.command import RemotingCommand

passes = pytest.importorskip("mqcore._fast.send.guard").passes

VERSION = 7
TOPICS = ["TopicA", "TopicB", "%RETRY%GroupA", "RMQ_SYS_TRACE_TOPIC", "Ümlaut", 'quo"ted', "T" * 120]
GROUPS = ["GroupA", "GroupB", "G" * 250, "%RETRY%GroupA"]
PERMS = ["DENY", "PUB", "SUB", "PUB|SUB"]
AT_ONCE = [Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE,
           Code.END_TRANSACTION, Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2]  # fmt: skip


def tables_of(*accounts: dict[str, Any]) -> AclTables:
    return make_tables({"file": {"accounts": [*accounts]}})


def account(chance: random.Random, key: str) -> dict[str, Any]:
    made: dict[str, Any] = {"accessKey": key, "secretKey": f"secret of {key}", "admin": chance.random() < 0.3}
    for name in ("defaultTopicPerm", "defaultGroupPerm"):
        if chance.random() < 0.6:
            made[name] = chance.choice(PERMS)
    for name, resources in (("topicPerms", TOPICS), ("groupPerms", GROUPS)):
        chosen = chance.sample(resources, chance.randrange(4))
        made[name] = [f"{resource}={chance.choice(PERMS)}" for resource in chosen]
    return made


def request_of(chance: random.Random, key: str) -> RemotingCommand:
    topic, group = chance.choice(TOPICS), chance.choice(GROUPS)
    code, fields = chance.choice(
        [
            (Code.SEND_MESSAGE, {"topic": topic, "group": group, "properties": "a\x01b\x02"}),
            (Code.SEND_MESSAGE_V2, {"b": topic, "a": group, "i": 'KEYS\x01"k\\"\x02UNIQ_KEY\x01Ü\U0001f600\x02'}),
            (Code.SEND_MESSAGE_V2, {"a": group}),
            (Code.SEND_BATCH_MESSAGE, {"b": topic}),
            (Code.PULL_MESSAGE, {"topic": topic, "consumerGroup": group, "subscription": "a || b"}),
            (Code.PULL_MESSAGE, {"topic": topic}),
            (Code.LITE_PULL_MESSAGE, {"topic": topic, "consumerGroup": group}),
            (Code.END_TRANSACTION, {"producerGroup": group}),
            (Code.SEND_REPLY_MESSAGE, {"producerGroup": group, "topic": topic}),
            (Code.SEND_REPLY_MESSAGE_V2, {"a": group, "b": topic}),
            (Code.UPDATE_BROKER_CONFIG, {}),
        ]
    )
    fields = {**fields, "AccessKey": key, **({"SecurityToken": "t"} if chance.random() < 0.2 else {})}
    body = chance.randbytes(chance.choice([0, 1, 50, 64, 1000]))
    fields[SIGNATURE] = sign(f"secret of {key}".encode(), signed_content(fields, body, SIGNATURE))
    damage = chance.random()
    if damage < 0.05:
        body += b"!"
    elif damage < 0.1:
        fields[SIGNATURE] = sign(b"another secret", signed_content(fields, body, SIGNATURE))
    elif damage < 0.15:
        fields["zz"] = "later"
    shuffled = dict(chance.sample(sorted(fields.items()), len(fields)))
    return RemotingCommand(code=code, opaque=1, ext_fields=shuffled, body=body, serialize_type=chance.choice([0, 1]))


def may(tables: AclTables, request: RemotingCommand) -> bool:
    try:
        validate(tables, request, "10.0.0.1")
    except AclError:
        return False
    return True


def is_plain(request: RemotingCommand) -> bool:
    """Whether it is none of those that the broker process must look at, whatever the rules are."""
    fields = request.ext_fields or {}
    if request.code in (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2):
        topic = fields.get("topic", fields.get("b", ""))
        return bool(topic) and '"' not in topic and not topic.startswith("%RETRY%")
    if request.code == Code.PULL_MESSAGE:
        return "consumerGroup" in fields and '"' not in fields["topic"]
    return request.code in AT_ONCE


def grant_of(
    tables: AclTables,
    key: str,
    *,
    version: int = VERSION,
    by_address: bool = False,
    by_certificate: bool = False,
) -> bytes:
    numbers = {name: number for number, name in enumerate(tables.accounts)}
    return encode_grant(numbers, version, Principal(tables.accounts[key], by_address, by_certificate))


def test_random_requests_are_served_at_once_where_the_twin_would_serve_them(chance: random.Random) -> None:
    served = refused = 0
    for _ in range(60):
        keys = [f"account-{number}" for number in range(chance.randrange(1, 6))]
        tables = tables_of(*(account(chance, key) for key in keys))
        table = encode_table(tables, VERSION)
        for _ in range(60):
            key = chance.choice(keys)
            request = request_of(chance, key)
            wanted = may(tables, request)
            if passes(table, grant_of(tables, key), request.encode()[4:]):
                assert wanted, (tables, request)
                served += 1
            else:
                assert not wanted or not is_plain(request), (tables, request)
                refused += not wanted
    assert served > 300
    assert refused > 300


def simple() -> tuple[AclTables, bytes, RemotingCommand]:
    tables = tables_of({"accessKey": "publisher", "secretKey": "very secret", "defaultTopicPerm": "PUB"})
    fields = {"b": "TopicA", "AccessKey": "publisher"}
    fields[SIGNATURE] = sign(b"very secret", signed_content(fields, b"body"))
    return tables, encode_table(tables, VERSION), RemotingCommand(Code.SEND_MESSAGE_V2, ext_fields=fields, body=b"body")


def test_a_grant_of_other_rules_is_nothing() -> None:
    tables, table, request = simple()
    assert passes(table, grant_of(tables, "publisher"), request.encode()[4:])
    for version in (0, VERSION - 1, VERSION + 1):
        assert not passes(table, grant_of(tables, "publisher", version=version), request.encode()[4:])


def test_another_key_than_the_granted_one_is_the_broker_process_s() -> None:
    tables, table, request = simple()
    assert request.ext_fields is not None
    request.ext_fields["AccessKey"] = "publishe"
    assert not passes(table, grant_of(tables, "publisher"), request.encode()[4:])
    assert not passes(table, grant_of(tables, "publisher", by_address=True), request.encode()[4:])


def test_an_address_that_lets_in_needs_no_signature() -> None:
    tables, table, request = simple()
    assert request.ext_fields is not None
    del request.ext_fields[SIGNATURE]
    assert not passes(table, grant_of(tables, "publisher"), request.encode()[4:])
    assert passes(table, grant_of(tables, "publisher", by_address=True), request.encode()[4:])
    assert passes(table, ACL_GRANT.struct.pack(VERSION, EVERYBODY, 1), RemotingCommand(Code.PULL_MESSAGE).encode()[4:])


def test_a_certificate_stands_for_the_signature_of_requests_without_a_key_and_for_no_permission() -> None:
    tables, table, request = simple()
    assert request.ext_fields is not None
    certified = grant_of(tables, "publisher", by_certificate=True)
    assert passes(table, certified, request.encode()[4:])
    request.ext_fields[SIGNATURE] = request.ext_fields[SIGNATURE][::-1]
    assert not passes(table, certified, request.encode()[4:])
    del request.ext_fields[SIGNATURE], request.ext_fields["AccessKey"]
    assert passes(table, certified, request.encode()[4:])
    assert not passes(table, grant_of(tables, "publisher"), request.encode()[4:])
    assert not passes(table, grant_of(tables, "publisher", by_address=True), request.encode()[4:])
    pull = RemotingCommand(Code.PULL_MESSAGE, ext_fields={"topic": "TopicA", "consumerGroup": "GroupA"})
    assert not passes(table, certified, pull.encode()[4:])
    both = grant_of(tables, "publisher", by_address=True, by_certificate=True)
    assert passes(table, both, pull.encode()[4:])


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_each_altered_byte_of_a_frame_is_noticed(serialize_type: int) -> None:
    tables, table, request = simple()
    request.serialize_type = serialize_type
    frame = request.encode()[4:]
    grant = grant_of(tables, "publisher")
    assert passes(table, grant, frame)
    unsigned = 0
    for at in range(len(frame)):
        altered = frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
        if passes(table, grant, altered):
            # Of the header, what is no field is not signed by RocketMQ's clients; and names are not, only their order.
            unsigned += 1
            assert b"body" in altered
            assert b"TopicA" in altered
    assert unsigned < len(frame) // 2


def test_a_look_up_by_unique_key_and_a_name_that_comes_twice_are_the_broker_process_s() -> None:
    tables, table, request = simple()
    assert request.ext_fields is not None
    fields = {**request.ext_fields, UNIQUE_KEY_QUERY: "true"}
    fields[SIGNATURE] = sign(b"very secret", signed_content(fields, b"body", SIGNATURE))
    twice = request.encode()[4:].replace(b'"b":"TopicA"', b'"b":"TopicB","b":"TopicA"')
    size = int.from_bytes(twice[:4]) + len(b'"b":"TopicB",')
    twice = size.to_bytes(4) + twice[4:]
    assert not passes(
        table, grant_of(tables, "publisher"), RemotingCommand(310, ext_fields=fields, body=b"body").encode()[4:]
    )
    assert not passes(table, grant_of(tables, "publisher"), twice)


def test_an_account_with_very_many_rules_is_looked_up(chance: random.Random) -> None:
    rules = {f"Topic{number}": chance.choice(PERMS) for number in range(3000)}
    tables = tables_of(
        {
            "accessKey": "publisher",
            "secretKey": "very secret",
            "topicPerms": [f"{name}={perm}" for name, perm in rules.items()],
        }
    )
    table = encode_table(tables, VERSION)
    for name in chance.sample(sorted(rules), 100):
        fields = {"b": name, "AccessKey": "publisher"}
        fields[SIGNATURE] = sign(b"very secret", signed_content(fields, b""))
        request = RemotingCommand(Code.SEND_MESSAGE_V2, ext_fields=fields)
        assert passes(table, grant_of(tables, "publisher"), request.encode()[4:]) == ("PUB" in rules[name])
