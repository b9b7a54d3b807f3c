"""What a request needs: a permission for each topic and group that it names.

A group stands for its retry topic, as in RocketMQ. Requests that are not in the table need a good signature and nothing
more, batch sends and the ends of transactions among them. Source: RocketMQ acl/plain/PlainAccessValidator.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mqcore.broker.security.permissions import Perm
from mqcore.codes import RequestCode as Code
from mqcore.errors import ProtocolError
from mqcore.protocol import headers
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.hashing import java_string_hash
from mqcore.protocol.heartbeat import HeartbeatData
from mqcore.protocol.names import is_retry_topic, retry_topic

Need = tuple[str | None, Perm]
HASH_TABLE_SIZE_MIN: Final = 16


def needs_of(request: RemotingCommand) -> dict[str, Perm]:
    """The permissions that *request* needs, by topic or retry topic; of what it names twice, the last one counts.

    They come in the order in which RocketMQ looks at them, since a refusal names the first that is missing. Raises
    ProtocolError if the request cannot be read.
    """
    reader = READERS.get(request.code)
    if reader is None or request.ext_fields is None:
        return {}
    found = {name: perm for name, perm in reader(request, request.ext_fields) if name is not None}
    return dict(sorted(found.items(), key=lambda need: _bucket(need[0], len(found)))) if len(found) > 1 else found


def _bucket(name: str, count: int) -> int:
    """Where Java's HashMap of *count* names keeps *name*."""
    size = HASH_TABLE_SIZE_MIN
    while count > size * 3 // 4:
        size *= 2
    value = java_string_hash(name) & 0xFFFFFFFF
    return (value ^ value >> 16) & (size - 1)


def _group(name: str | None) -> Need:
    return (retry_topic(name) if name is not None else None), Perm.SUB


def _send(topic: str, group: str) -> Callable[[RemotingCommand, Mapping[str, str]], Iterable[Need]]:
    def read(request: RemotingCommand, fields: Mapping[str, str]) -> Iterable[Need]:
        name = fields.get(topic)
        # Who sends to a retry topic gives back what his group could not consume.
        return [_group(fields.get(group)) if name is not None and is_retry_topic(name) else (name, Perm.PUB)]

    return read


def _send_back(request: RemotingCommand, fields: Mapping[str, str]) -> Iterable[Need]:
    return [_group(fields.get("group"))]


def _pull(request: RemotingCommand, fields: Mapping[str, str]) -> Iterable[Need]:
    return [(fields.get("topic"), Perm.SUB), _group(fields.get("consumerGroup"))]


def _query(request: RemotingCommand, fields: Mapping[str, str]) -> Iterable[Need]:
    return [(fields.get("topic"), Perm.SUB)]


def _heart_beat(request: RemotingCommand, fields: Mapping[str, str]) -> Iterable[Need]:
    if not request.body:
        raise ProtocolError("a heart-beat without a body")
    for consumer in HeartbeatData.decode(request.body).consumer_data_set:
        yield _group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield subscription.topic, Perm.SUB


def _of_header(request: RemotingCommand, fields: Mapping[str, str]) -> Iterable[Need]:
    header = headers.decode_request(request.code, request.ext_fields)
    return [_group(header.get("consumer_group")), (header.get("topic"), Perm.SUB)]


READERS: Final[dict[int, Callable[[RemotingCommand, Mapping[str, str]], Iterable[Need]]]] = {
    Code.SEND_MESSAGE: _send("topic", "group"),
    Code.SEND_MESSAGE_V2: _send("b", "a"),
    Code.CONSUMER_SEND_MSG_BACK: _send_back,
    Code.PULL_MESSAGE: _pull,
    Code.QUERY_MESSAGE: _query,
    Code.HEART_BEAT: _heart_beat,
    Code.UNREGISTER_CLIENT: _of_header,
    Code.GET_CONSUMER_LIST_BY_GROUP: _of_header,
    Code.UPDATE_CONSUMER_OFFSET: _of_header,
}
