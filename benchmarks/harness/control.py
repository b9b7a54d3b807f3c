"""One blocking connection for what is asked before and after a load: topics and offsets."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Final, Self

from mqcore.codes import PermName, RequestCode, ResponseCode
from mqcore.protocol.command import FrameSplitter, RemotingCommand, next_opaque

ANSWER_TIMEOUT_S: Final = 10.0
POLL_INTERVAL_S: Final = 0.02
READ_SIZE: Final = 65536

Address = tuple[str, int]


class ControlError(Exception):
    """A broker refused what the harness needs, or its figures contradict what it acknowledged."""


class ControlClient:
    """Asks a broker one thing at a time. Not for use while its answers are being timed."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._socket = socket.create_connection(address, timeout=ANSWER_TIMEOUT_S)
        self._splitter = FrameSplitter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, code: RequestCode, fields: dict[str, str]) -> RemotingCommand:
        """Send one request and return its answer, whatever its code.

        Raises ControlError if the broker closes the connection, TimeoutError if it is silent for ANSWER_TIMEOUT_S.
        """
        request = RemotingCommand(code=code, opaque=next_opaque(), ext_fields=fields)
        self._socket.sendall(request.encode())
        while True:
            data = self._socket.recv(READ_SIZE)
            if not data:
                raise ControlError(f"{self.address}: connection closed instead of an answer to {code.name}")
            for payload in self._splitter.feed(data):
                answer = RemotingCommand.decode(payload)
                if answer.is_response and answer.opaque == request.opaque:
                    return answer

    def demand(self, code: RequestCode, fields: dict[str, str]) -> RemotingCommand:
        """As `ask`, but raises ControlError unless the answer is SUCCESS."""
        answer = self.ask(code, fields)
        if answer.code != ResponseCode.SUCCESS:
            raise ControlError(
                f"{self.address}: {code.name} {fields}: got code {answer.code} ({answer.remark}), wanted 0"
            )
        return answer

    def create_topic(self, topic: str, queue_count: int) -> None:
        """Create *topic*, or change its queue counts, and return when the broker knows it."""
        self.demand(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": str(queue_count),
                "writeQueueNums": str(queue_count),
                "perm": str(PermName.READ | PermName.WRITE),
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            },
        )
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while self.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}).code != ResponseCode.SUCCESS:
            if time.monotonic() > deadline:
                raise ControlError(f"{self.address}: topic {topic} not there {ANSWER_TIMEOUT_S:g} s after its creation")
            time.sleep(POLL_INTERVAL_S)

    def max_offsets(self, topic: str, queue_count: int) -> list[int]:
        """Return the max offset of each queue of *topic*."""
        offsets = []
        for queue_id in range(queue_count):
            answer = self.demand(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
            offsets.append(int((answer.ext_fields or {})["offset"]))
        return offsets

    def await_total(self, topic: str, queue_count: int, total: int) -> list[int]:
        """Wait until the max offsets of *topic* add up to *total*, and return them.

        A broker may acknowledge before it has built the consume queue, so less is waited for. Raises ControlError if
        the sum is more, or still less after ANSWER_TIMEOUT_S.
        """
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            offsets = self.max_offsets(topic, queue_count)
            if sum(offsets) == total:
                return offsets
            if sum(offsets) > total or time.monotonic() > deadline:
                raise ControlError(
                    f"{self.address}: topic {topic}: max offsets add up to {sum(offsets)}, acknowledged were {total}"
                )
            time.sleep(POLL_INTERVAL_S)
