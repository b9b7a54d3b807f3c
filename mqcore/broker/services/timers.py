"""Messages that say when they want to be delivered: how they are rewritten on their way in, and how one is taken back.

What is accepted goes into the timer topic with its real place in its properties, and is the timer worker's from there.
The send workers do the same for the common case (_fast/send/timer.pyx); here is every case, and the words of refusals.
Source: RocketMQ broker/util/HookUtils.java, common/producer/RecallMessageHandle.java,
store/timer/TimerMessageStore.java.
"""

from __future__ import annotations

import base64
import binascii
import random
from dataclasses import dataclass, replace
from typing import Final

from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.ports import Clock, InnerMessage, MessageSink, PutResult, PutStatus
from mqcore.broker.ports.timers import TimerFacts, TimerPort
from mqcore.broker.services.delay_levels import delay_level
from mqcore.broker.topics import READ_WRITE, TopicConfigManager
from mqcore.codes import TRANSACTION_MASK, SysFlag
from mqcore.protocol.names import TIMER_TOPIC, is_retry_topic
from mqcore.protocol.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    TIMER_REQUESTS,
    encode_properties,
)
from mqcore.store.timer.timed import ILLEGAL, due_time, is_timed, slot_of

HANDLE_VERSION: Final = "v1"
HANDLE_PARTS: Final = 5
RATE_SPAN: Final = 10
"""Over so many samples, of a second each, rates are counted."""


class TimerRefusedError(Exception):
    """A message cannot wait as it asks to; *status* says why, and is answered."""

    def __init__(self, status: PutStatus) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """What names a message that waits. *timestamp*: a time, ms, that lies in the same slot."""

    topic: str
    broker_name: str
    timestamp: int
    unique_key: str

    def encode(self) -> str:
        """The handle as producers are given it."""
        text = f"{HANDLE_VERSION} {self.topic} {self.broker_name} {self.timestamp} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """Read what ``encode`` gives. Raises ValueError for anything else; a timestamp that is no number is -1."""
        try:
            # Java's decoder does not ask for padding.
            parts = base64.b64decode(text + "=" * (-len(text) % 4), "-_", validate=True).decode().split(" ")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ValueError("recall handle is invalid") from error
        if not text or parts[0] != HANDLE_VERSION or len(parts) < HANDLE_PARTS:
            raise ValueError("recall handle is invalid")
        timestamp = int(parts[3]) if parts[3].isascii() and parts[3].isdecimal() else -1
        return cls(parts[1], parts[2], timestamp, parts[4])


def delete_key(topic: str, unique_key: str) -> str:
    """The value of TIMER_DEL_UNIQKEY that takes back the message of that topic and key."""
    return f"{topic}+{unique_key}"


class TimerMessages:
    """Messages with timers, on their way in."""

    def __init__(
        self, settings: LiveSettings, topics: TopicConfigManager, sink: MessageSink, port: TimerPort, clock: Clock
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._sink = sink
        self._port = port
        self._clock = clock
        self._samples: list[TimerFacts] = []

    def rewrite(self, message: InnerMessage) -> InnerMessage:
        """Return *message* on its way into the timer topic if it has to wait for a time, else *message* itself.

        A delay level wins: the timer properties go. Half and rolled back messages do not wait.
        Raises TimerRefusedError, and HeaderError if the level is not a number.
        """
        if message.sys_flag & TRANSACTION_MASK not in (0, SysFlag.TRANSACTION_COMMIT) or message.topic == TIMER_TOPIC:
            return message
        if not any(name in message.properties for name in TIMER_REQUESTS):
            return message
        if delay_level(message.properties) > 0:
            kept = {name: value for name, value in message.properties.items() if name not in TIMER_REQUESTS}
            return replace(message, properties=kept)
        if not is_timed(message.properties):
            return message
        store = self._settings.store
        if not store.timer_wheel_enable:
            raise TimerRefusedError(PutStatus.WHEEL_TIMER_NOT_ENABLE)
        due = due_time(message.properties, self._clock(), store.timer_max_delay_sec * 1000)
        if due == ILLEGAL:
            raise TimerRefusedError(PutStatus.WHEEL_TIMER_MSG_ILLEGAL)
        return message if due is None else self._waiting(message, slot_of(due, store.timer_precision_ms))

    def _waiting(self, message: InnerMessage, slot: int) -> InnerMessage:
        if self._is_congested(slot):
            raise TimerRefusedError(PutStatus.WHEEL_TIMER_FLOW_CONTROL)
        properties = message.properties | {
            PROPERTY_TIMER_OUT_MS: str(slot),
            PROPERTY_REAL_TOPIC: message.topic,
            PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
        }
        # WAIT comes back into the text here, as with a delay level.
        return replace(
            message, topic=TIMER_TOPIC, queue_id=0, properties=properties, properties_text=encode_properties(properties)
        )

    def _is_congested(self, slot: int) -> bool:
        limit = self._settings.store.timer_congest_num_each_slot
        count = self._port.slot_count(slot)
        if count <= limit:
            return False
        # As upstream: between the limit and twice the limit, the fuller the slot the more gets in.
        return count >= limit * 2 or random.randrange(1000) > 1000 * (count - limit) / (limit + 0.1)

    async def make_ready(self) -> None:
        """Have the timer topic, and a worker that reads it. Raises WorkerError."""
        await self._topics.create(TIMER_TOPIC, 1, READ_WRITE, 0)
        await self._port.start()

    async def put(self, message: InnerMessage) -> PutResult:
        """Store *message*, which ``rewrite`` has put into the timer topic."""
        await self.make_ready()
        return await self._sink.put(message)

    def handle_of(self, message: InnerMessage) -> str | None:
        """The recall handle of a message that ``rewrite`` has put into the timer topic; None: it gets none."""
        topic = message.properties.get(PROPERTY_REAL_TOPIC)
        slot = message.properties.get(PROPERTY_TIMER_OUT_MS)
        if message.topic != TIMER_TOPIC or topic is None or slot is None or is_retry_topic(topic):
            return None
        key = message.properties.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "null")
        return RecallHandle(topic, self._settings.broker.broker_name, int(slot) + 1, key).encode()

    # Figures.

    def sample(self) -> None:
        """Remember the figures. To be called every second."""
        self._samples = [*self._samples[-RATE_SPAN:], self._port.facts()]

    def table(self) -> dict[str, str]:
        """The timer keys of the runtime table."""
        facts = self._port.facts()
        behind_s = max(0, self._clock() - facts.read_time) // 1000 if facts.read_time else 0
        return {
            "timerReadBehind": str(behind_s),
            "timerOffsetBehind": str(facts.behind),
            "timerCongestNum": str(facts.pending),
            "timerEnqueueTps": f"{self._rate('enqueued'):.1f}",
            "timerDequeueTps": f"{self._rate('delivered'):.1f}",
        }

    def _rate(self, name: str) -> float:
        if len(self._samples) < 2:
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        grown: int = getattr(last, name) - getattr(first, name)
        return grown / (len(self._samples) - 1)

    def checkpoint(self) -> bytes:
        return self._port.checkpoint()

    def metrics(self) -> bytes:
        return self._port.metrics() or b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"timingCount":{}}'
