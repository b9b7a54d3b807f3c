"""Java's messages and results: with getters and setters, and the same data as those of mqcore.client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mqcore import client
from mqcore.client import ReceivedMessage, SendReceipt, SendStatus
from mqcore.protocol.message import MessageQueue as CoreMessageQueue
from mqcore.protocol.properties import (
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
)


class MessageQueue(CoreMessageQueue):
    """A queue of a topic. It is equal to, and may stand for, the ``mqcore.client.MessageQueue`` of the same place."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CoreMessageQueue) and _place(self) == _place(other)

    def __hash__(self) -> int:
        return hash(_place(self))

    def __str__(self) -> str:
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"

    def get_topic(self) -> str:
        return self.topic

    def get_broker_name(self) -> str:
        return self.broker_name

    def get_queue_id(self) -> int:
        return self.queue_id

    @classmethod
    def of(cls, queue: CoreMessageQueue) -> MessageQueue:
        """Return *queue* with Java's getters."""
        return cls(queue.topic, queue.broker_name, queue.queue_id)


def _place(queue: CoreMessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def core_queue(queue: CoreMessageQueue) -> CoreMessageQueue:
    """Return *queue* as the rest of mqcore has it."""
    return CoreMessageQueue(*_place(queue))


class Message:
    """A message to send, made like Java's: (topic, body), (topic, tags, body), (topic, tags, keys, body)."""

    def __init__(self, topic: str = "", *rest: str | bytes) -> None:
        if len(rest) > 3:
            raise TypeError(f"Message(topic, tags, keys, body): got {len(rest)} values after the topic")
        *texts, body = rest or (b"",)
        if not isinstance(body, bytes) or not all(isinstance(text, str) for text in texts):
            raise TypeError("Message(topic, tags, keys, body): tags and keys are text, the body is bytes")
        self._topic = topic
        self._body = body
        self._tags = str(texts[0]) if texts else None
        self._keys = str(texts[1]) if len(texts) > 1 else None
        self._flag = 0
        self._properties: dict[str, str] = {}
        self._delay_level = 0
        self._wait_store_ok = True
        self._transaction_id: str | None = None

    def __str__(self) -> str:
        return (
            f"Message{{topic='{self._topic}', flag={self._flag}, properties={self._properties}, tags={self._tags}, "
            f"keys={self._keys}, body={self._body!r}, transactionId='{self._transaction_id}'}}"
        )

    def get_topic(self) -> str:
        return self._topic

    def set_topic(self, topic: str) -> None:
        self._topic = topic

    def get_body(self) -> bytes:
        return self._body

    def set_body(self, body: bytes) -> None:
        self._body = body

    def get_tags(self) -> str | None:
        return self._tags

    def set_tags(self, tags: str) -> None:
        self._tags = tags

    def get_keys(self) -> str | None:
        return self._keys

    def set_keys(self, keys: str | Iterable[str]) -> None:
        """Set one key, several separated by blanks, or a collection of keys."""
        self._keys = keys if isinstance(keys, str) else " ".join(keys)

    def get_flag(self) -> int:
        return self._flag

    def set_flag(self, flag: int) -> None:
        self._flag = flag

    def get_delay_time_level(self) -> int:
        return self._delay_level

    def set_delay_time_level(self, level: int) -> None:
        """Hold the message back: level 1 to 18 is 1s 5s 10s 30s 1m 2m 3m ... 10m 20m 30m 1h 2h."""
        self._delay_level = level

    def get_delay_time_sec(self) -> int:
        return int(self._properties.get(PROPERTY_TIMER_DELAY_SEC, "0"))

    def set_delay_time_sec(self, seconds: int) -> None:
        """Have a broker with timers, mqcore or RocketMQ 5, hold the message back so long."""
        self._properties[PROPERTY_TIMER_DELAY_SEC] = str(seconds)

    def get_delay_time_ms(self) -> int:
        return int(self._properties.get(PROPERTY_TIMER_DELAY_MS, "0"))

    def set_delay_time_ms(self, ms: int) -> None:
        self._properties[PROPERTY_TIMER_DELAY_MS] = str(ms)

    def get_deliver_time_ms(self) -> int:
        return int(self._properties.get(PROPERTY_TIMER_DELIVER_MS, "0"))

    def set_deliver_time_ms(self, ms: int) -> None:
        """Have a broker with timers deliver the message at that time, ms since the epoch."""
        self._properties[PROPERTY_TIMER_DELIVER_MS] = str(ms)

    def is_wait_store_msg_ok(self) -> bool:
        return self._wait_store_ok

    def set_wait_store_msg_ok(self, wait: bool) -> None:
        self._wait_store_ok = wait

    def put_user_property(self, name: str, value: str) -> None:
        self._properties[name] = value

    def get_user_property(self, name: str) -> str | None:
        return self._properties.get(name)

    def get_properties(self) -> dict[str, str]:
        return self._properties

    def get_transaction_id(self) -> str | None:
        return self._transaction_id

    def set_transaction_id(self, transaction_id: str | None) -> None:
        self._transaction_id = transaction_id

    def to_core(self) -> client.Message:
        """Return the message as ``mqcore.client`` sends it."""
        return client.Message(
            self._topic,
            self._body,
            tag=self._tags,
            keys=(self._keys or "").split(),
            properties=self._properties,
            delay_level=self._delay_level,
            flag=self._flag,
            wait_store_ok=self._wait_store_ok,
        )


class MessageExt:
    """A received message with Java's getters; *received* is the same as ``mqcore.client`` has it."""

    def __init__(self, received: ReceivedMessage) -> None:
        self.received = received

    def __str__(self) -> str:
        found = self.received
        return (
            f"MessageExt [brokerName={found.queue.broker_name}, queueId={found.queue.queue_id}, "
            f"queueOffset={found.queue_offset}, reconsumeTimes={found.reconsume_times}, msgId={found.msg_id}, "
            f"topic={found.topic}, tags={found.tag}, keys={' '.join(found.keys)}, body={found.body!r}]"
        )

    def get_topic(self) -> str:
        return self.received.topic

    def get_body(self) -> bytes:
        return self.received.body

    def get_tags(self) -> str | None:
        return self.received.tag

    def get_keys(self) -> str | None:
        return " ".join(self.received.keys) or None

    def get_msg_id(self) -> str:
        return self.received.msg_id

    def get_offset_msg_id(self) -> str:
        return self.received.offset_msg_id

    def get_queue_id(self) -> int:
        return self.received.queue.queue_id

    def get_broker_name(self) -> str:
        return self.received.queue.broker_name

    def get_queue_offset(self) -> int:
        return self.received.queue_offset

    def get_reconsume_times(self) -> int:
        return self.received.reconsume_times

    def get_born_timestamp(self) -> int:
        return self.received.born_timestamp

    def get_store_timestamp(self) -> int:
        return self.received.store_timestamp

    def get_born_host(self) -> str:
        return str(self.received.ext.born_host)

    def get_store_host(self) -> str:
        return str(self.received.ext.store_host)

    def get_store_size(self) -> int:
        return self.received.ext.store_size

    def get_commit_log_offset(self) -> int:
        return self.received.ext.physical_offset

    def get_prepared_transaction_offset(self) -> int:
        return self.received.ext.prepared_transaction_offset

    def get_sys_flag(self) -> int:
        return self.received.ext.sys_flag

    def get_flag(self) -> int:
        return self.received.flag

    def get_delay_time_level(self) -> int:
        return int(self.received.properties.get("DELAY", "0"))

    def get_transaction_id(self) -> str | None:
        return self.received.ext.transaction_id

    def get_user_property(self, name: str) -> str | None:
        return self.received.properties.get(name)

    def get_property(self, name: str) -> str | None:
        return self.received.properties.get(name)

    def get_properties(self) -> dict[str, str]:
        return dict(self.received.properties)


def as_java(messages: Sequence[ReceivedMessage]) -> list[MessageExt]:
    """Return received messages with Java's getters."""
    return [MessageExt(message) for message in messages]


class SendResult:
    """What a broker said about a sent message, or a batch: then the ids are joined by commas."""

    def __init__(self, receipts: Sequence[SendReceipt]) -> None:
        self.receipts = list(receipts)

    def __str__(self) -> str:
        return (
            f"SendResult [sendStatus={self.get_send_status().name}, msgId={self.get_msg_id()}, "
            f"offsetMsgId={self.get_offset_msg_id()}, messageQueue={self.get_message_queue()}, "
            f"queueOffset={self.get_queue_offset()}]"
        )

    def get_send_status(self) -> SendStatus:
        return self.receipts[0].status

    def get_msg_id(self) -> str:
        return ",".join(receipt.msg_id for receipt in self.receipts)

    def get_offset_msg_id(self) -> str:
        return ",".join(receipt.offset_msg_id for receipt in self.receipts)

    def get_message_queue(self) -> MessageQueue:
        return MessageQueue.of(self.receipts[0].queue)

    def get_queue_offset(self) -> int:
        return self.receipts[0].offset

    def get_transaction_id(self) -> str | None:
        return self.receipts[0].transaction_id

    def get_region_id(self) -> str:
        return self.receipts[0].region_id
