"""Sends without an end, from several threads: what was stored and where, what failed, and for how long nothing was."""

from __future__ import annotations

import itertools
import threading
import time
from types import TracebackType
from typing import Final, NamedTuple, Self

from mqcore.client import Client, Message, Producer, SendReceipt, SendStatus
from mqcore.errors import MQError
from mqcore.protocol.message_id import decode_offset_message_id

PAUSE_S: Final = 0.001
TIMEOUT_S: Final = 30.0


class Stored(NamedTuple):
    """A message that was acknowledged, and where in the log it is."""

    body: str
    physical_offset: int


class SteadySends:
    """A context manager: the threads send as long as it lasts."""

    def __init__(self, name_server: str, topic: str, senders: int = 2) -> None:
        self.stored: dict[tuple[int, int], Stored] = {}
        """By queue and offset."""
        self.failed: list[str] = []
        self._answered_s: list[float] = []
        self._topic = topic
        self._is_ending = threading.Event()
        self._client = Client(name_server)
        self._threads = [threading.Thread(target=self._send, args=(sender,)) for sender in range(senders)]

    def longest_silence_s(self, since_s: float) -> float:
        """Return the longest time without SEND_OK that ended after *since_s*, of the monotonic clock."""
        times = sorted(self._answered_s)
        return max((later - earlier for earlier, later in itertools.pairwise(times) if later > since_s), default=0.0)

    def has_answer_since(self, since_s: float) -> bool:
        return any(time_s > since_s for time_s in self._answered_s[-len(self._threads) :])

    def _send(self, sender: int) -> None:
        with self._client.producer(f"steady-{sender}") as producer:
            for number in itertools.count():
                if self._is_ending.is_set():
                    return
                self._send_one(producer, f"{sender}-{number}")
                time.sleep(PAUSE_S)

    def _send_one(self, producer: Producer, body: str) -> None:
        try:
            receipt = producer.send(Message(self._topic, body.encode()), timeout_s=TIMEOUT_S)
        except MQError as error:
            self.failed.append(f"{body}: {error!r}")
            return
        if receipt.status is not SendStatus.SEND_OK:
            self.failed.append(f"{body}: {receipt}")
            return
        self._answered_s.append(time.monotonic())
        self.stored[receipt.queue.queue_id, receipt.offset] = Stored(body, physical_offset_of(receipt))

    def __enter__(self) -> Self:
        self._client.__enter__()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_ending.set()
        for thread in self._threads:
            thread.join()
        self._client.__exit__(error_type, error, traceback)


def physical_offset_of(receipt: SendReceipt) -> int:
    assert receipt.offset_msg_id is not None
    return decode_offset_message_id(receipt.offset_msg_id).physical_offset
