"""What the drivers of other people's clients report: one tab-separated line per message sent or received."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

SEND_OK = "SEND_OK"


class QueueName(NamedTuple):
    """A queue of a known topic."""

    broker: str
    queue_id: int


class SentMessage(NamedTuple):
    """A message as its producer knows it; *status* is SEND_OK, another send status or the text of an error."""

    key: str
    status: str
    message_id: str
    offset_message_id: str
    broker: str
    queue_id: int
    queue_offset: int

    @property
    def place(self) -> tuple[QueueName, int]:
        return QueueName(self.broker, self.queue_id), self.queue_offset


class ReceivedMessage(NamedTuple):
    """A delivery as its consumer saw it; *outcome* is what the consumer answered, or how the message was found."""

    key: str
    topic: str
    queue_id: int
    queue_offset: int
    body_sha1: str
    body_size: int
    reconsume_times: int
    broker: str
    tags: str
    outcome: str
    message_id: str

    @property
    def place(self) -> tuple[QueueName, int]:
        return QueueName(self.broker, self.queue_id), self.queue_offset


def _rows(path: Path) -> list[list[str]]:
    text = path.read_text(encoding="utf-8")
    return [line.split("\t") for line in text.split("\n")[:-1]]


def read_sent(path: Path) -> list[SentMessage]:
    """The report of a producer, in the order of the answers."""
    return [SentMessage(row[0], row[1], row[2], row[3], row[4], int(row[5]), int(row[6])) for row in _rows(path)]


def read_received(path: Path) -> list[ReceivedMessage]:
    """The report of a consumer, in the order of the deliveries."""
    return [
        ReceivedMessage(row[0], row[1], int(row[2]), int(row[3]), row[4], int(row[5]), int(row[6]), *row[7:])
        for row in _rows(path)
    ]
