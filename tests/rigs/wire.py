"""The remoting protocol at its smallest: one JSON frame out, one back, on a fresh blocking socket.

On purpose it shares nothing with mqcore.protocol: what starts and inspects brokers in tests must not inherit the
mistakes under test.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any

VERSION_4_9_8 = 409
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
UPDATE_AND_CREATE_TOPIC = 17
GET_BROKER_RUNTIME_INFO = 28
GET_MAX_OFFSET = 30
GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
SUCCESS = 0
FRAME_SIZE_MAX = 64 << 20
TIMEOUT_S = 30.0

_BARE_KEY = re.compile(r"([{,])(\d+):")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response command."""

    code: int
    remark: str | None
    ext_fields: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON; fastjson's bare integer keys become text."""
        return json.loads(_BARE_KEY.sub(r'\1"\2":', self.body.decode()))


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError(f"the peer closed the connection after {len(data)} of {size} bytes")
        data += chunk
    return bytes(data)


def _connected(host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None) -> socket.socket:
    connection = socket.create_connection((host, port), timeout_s)
    try:
        return connection if tls is None else tls.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


def call(
    address: str,
    code: int,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    timeout_s: float = TIMEOUT_S,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send one request to *address* (host:port) and give its answer. Raises OSError if nobody answers."""
    header: dict[str, Any] = {
        "code": code,
        "extFields": ext_fields or {},
        "flag": 0,
        "language": "JAVA",
        "opaque": 1,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION_4_9_8,
    }
    header_bytes = json.dumps(header, separators=(",", ":")).encode()
    host, _, port = address.rpartition(":")
    with _connected(host, int(port), timeout_s, tls) as connection:
        connection.sendall(
            struct.pack(">ii", 4 + len(header_bytes) + len(body), len(header_bytes)) + header_bytes + body
        )
        while True:
            frame_size, marked_header_size = struct.unpack(">ii", _read_exactly(connection, 8))
            if not 4 <= frame_size <= FRAME_SIZE_MAX:
                raise ConnectionError(f"bad frame size: got {frame_size}, wanted 4 to {FRAME_SIZE_MAX}")
            payload = _read_exactly(connection, frame_size - 4)
            header_size = marked_header_size & 0xFFFFFF
            answer = json.loads(payload[:header_size])
            if answer["flag"] & 1:  # else a request of the server, which is none of our business
                return Answer(
                    answer["code"], answer.get("remark"), answer.get("extFields") or {}, payload[header_size:]
                )


def registered_brokers(name_server: str, tls: ssl.SSLContext | None = None) -> dict[str, dict[str, str]]:
    """Broker name to {broker id: address}, as the name server knows it now; empty if it does not answer yet."""
    try:
        answer = call(name_server, GET_BROKER_CLUSTER_INFO, tls=tls)
    except OSError:
        return {}
    if answer.code != SUCCESS:
        return {}
    table = answer.json().get("brokerAddrTable") or {}
    return {name: data["brokerAddrs"] for name, data in table.items()}


def known_topics(name_server: str) -> list[str]:
    """The topics that the name server knows of."""
    return list(call(name_server, GET_ALL_TOPIC_LIST_FROM_NAMESERVER).json().get("topicList") or ())


def serves(name_server: str, broker: str, tls: ssl.SSLContext | None = None) -> bool:
    """Whether the broker at the address *broker* is registered at the name server and answers requests itself."""
    addresses = {
        address for broker_ids in registered_brokers(name_server, tls).values() for address in broker_ids.values()
    }
    if broker not in addresses:
        return False
    try:
        answer = call(broker, GET_BROKER_RUNTIME_INFO, tls=tls)
        # One with access control asks for a key first.
        return answer.code == SUCCESS or "AclException" in (answer.remark or "")
    except OSError:
        return False


def create_topic(broker: str, topic: str, *, queues: int = 8) -> None:
    """Create or change a readable and writable topic on one broker; it tells its name servers before it answers."""
    answer = call(
        broker,
        UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        },
    )
    if answer.code != SUCCESS:
        raise AssertionError(f"creating topic {topic} on {broker}: code {answer.code}, {answer.remark}")


def has_route(name_server: str, topic: str) -> bool:
    """Whether the name server knows a route to *topic*."""
    return call(name_server, GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == SUCCESS


def max_offset(broker: str, topic: str, queue_id: int) -> int:
    """The offset after the last message of a queue."""
    answer = call(broker, GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
    if answer.code != SUCCESS:
        raise AssertionError(f"max offset of {topic}/{queue_id} at {broker}: code {answer.code}, {answer.remark}")
    return int(answer.ext_fields["offset"])


def is_dispatched(broker: str) -> bool:
    """Whether everything stored so far is in its consume queue and in the index: both follow the acknowledgement."""
    return int(call(broker, GET_BROKER_RUNTIME_INFO).json()["table"]["dispatchBehindBytes"]) == 0


def consumer_offset(broker: str, group: str, topic: str, queue_id: int) -> int | None:
    """The offset that a group has committed for a queue, None if it has none."""
    answer = call(broker, QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)})
    return int(answer.ext_fields["offset"]) if answer.code == SUCCESS else None


def commit_offset(broker: str, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Commit a group's offset for a queue."""
    answer = call(
        broker,
        UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)},
    )
    if answer.code != SUCCESS:
        raise AssertionError(f"committing an offset of {group} at {broker}: code {answer.code}, {answer.remark}")
