"""Messages that wait for a time, over deaths: what was asked for and answered, and what has to follow from that."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from random import Random

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.properties import encode_properties
from tests.fault.history import History, read_all
from tests.fault.rig import DEADLINE_S, at_work
from tests.fault.store_scan import StoreScan
from tests.fault.talker import Talker
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

PRECISION_MS = 100
WINDOW_MS = 800
# Every file rolls within a round, what waits longer than the window is rolled, and checkpoints come often.
RULES = {
    "timerPrecisionMs": str(PRECISION_MS),
    "timerRollWindowSlot": str(WINDOW_MS // PRECISION_MS),
    "timerFlushIntervalMs": "20",
    "mappedFileSizeTimerLog": str(52 * 80 + 20),
    "recallMessageEnable": "true",
}
IN_TIME_MS = 2000
"""A recall that is answered so long before the message is due takes it back, whoever dies meanwhile."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class TimerLedger:
    """What producers asked for and were told, by body. Several threads may use it."""

    def __init__(self, broker: MqcoreBroker, history: History) -> None:
        self.broker = broker
        self.history = history
        self.due: dict[bytes, int] = {}
        """When, ms; of all that were sent."""
        self.accepted: set[bytes] = set()
        self.asked_back: set[bytes] = set()
        self.recalled: set[bytes] = set()
        """Taken back in time: the answer said so."""
        self._numbers = iter(range(1 << 30))
        self._lock = threading.Lock()

    # Requests.

    def request(self, rng: Random, delay_ms: int) -> tuple[bytes, RemotingCommand]:
        """A message that is due in *delay_ms*."""
        with self._lock:
            body = f"{self.history.run}-{next(self._numbers)}".encode()
            self.due[body] = now_ms() + delay_ms
        asked = rng.choice([{"TIMER_DELIVER_MS": str(self.due[body])}, {"TIMER_DELAY_MS": str(delay_ms)}])
        properties = {"UNIQ_KEY": body.decode(), "WAIT": "true"} | asked
        fields = headers.encode_request(
            RequestCode.SEND_MESSAGE_V2, producer_group="fault_timers", topic=self.history.topic,
            default_topic="TBW102", default_topic_queue_nums=4, queue_id=rng.randrange(self.history.queues),
            sys_flag=0, born_timestamp=now_ms(), flag=0, properties=encode_properties(properties), reconsume_times=0,
        )  # fmt: skip
        return body, RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)

    def send(self, talker: Talker, rng: Random, delays_ms: Iterable[int]) -> dict[bytes, str]:
        """Send messages in one write; the recall handles of those that wait."""
        requests = [self.request(rng, delay_ms) for delay_ms in delays_ms]
        talker.send([command for _, command in requests])
        bodies = {command.opaque: body for body, command in requests}
        handles: dict[bytes, str] = {}
        while bodies:
            reply = talker.receive()
            body = bodies.pop(reply.opaque)
            if reply.code == ResponseCode.SUCCESS:
                assert reply.ext_fields is not None
                self.accepted.add(body)
                if "recallHandle" in reply.ext_fields:  # else it was due when it came
                    handles[body] = reply.ext_fields["recallHandle"]
        return handles

    def recall(self, talker: Talker, body: bytes, handle: str, in_time_ms: int = IN_TIME_MS) -> None:
        """Ask a message back; it counts as taken back if the answer is there *in_time_ms* before it is due."""
        self.asked_back.add(body)
        fields = {"topic": self.history.topic, "recallHandle": handle, "producerGroup": "fault_timers"}
        reply = talker.call(RemotingCommand(RequestCode.RECALL_MESSAGE, ext_fields=fields))
        if reply.code == ResponseCode.SUCCESS and self.due[body] - now_ms() > in_time_ms:
            self.recalled.add(body)

    # Traffic.

    def work(self, stop: threading.Event, rng: Random) -> None:
        """Send messages of all kinds until *stop*, over one connection after the other."""
        while not stop.is_set():
            with contextlib.suppress(OSError), Talker(self.broker.broker_address) as talker:
                while not stop.wait(0.02):
                    self.send(talker, rng, [rng.randrange(10, 600) for _ in range(rng.randrange(1, 20))])
                    self.send(talker, rng, [rng.randrange(WINDOW_MS, 3 * WINDOW_MS) for _ in range(3)])
                    handles = self.send(talker, rng, [rng.randrange(IN_TIME_MS + 500, IN_TIME_MS + 2000)] * 2)
                    for body, handle in list(handles.items())[:1]:
                        self.recall(talker, body, handle)
            stop.wait(0.01)

    def under_way(self, rng: Random, workers: int = 2) -> contextlib.AbstractContextManager[None]:
        """Traffic until the block is left."""
        return at_work(*(partial(self.work, rng=Random(rng.random())) for _ in range(workers)))

    def await_more(self, count: int) -> None:
        """Wait until so many more messages have been accepted."""
        wanted = len(self.accepted) + count
        wait_until(lambda: len(self.accepted) >= wanted, DEADLINE_S, "messages are accepted")

    # What became of it.

    def runtime(self, key: str) -> int:
        return int(wire.call(self.broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"][key])

    def is_settled(self) -> bool:
        """Whether nothing waits any more. In this order: what is rolled is in the topic before it waits again."""
        return (
            max(self.due.values()) < now_ms()
            and wire.is_dispatched(self.broker.broker_address)
            and self.runtime("timerOffsetBehind") == 0
            and self.runtime("timerCongestNum") == 0
            and wire.is_dispatched(self.broker.broker_address)
            and self.runtime("timerOffsetBehind") == 0
        )

    def settle(self) -> None:
        """Let everything come due, and hold what there is against what was promised."""
        wanted = self.accepted - self.asked_back
        wait_until(lambda: wanted <= set(self.seen()), DEADLINE_S, "every message is delivered")
        wait_until(self.is_settled, DEADLINE_S, "nothing waits any more")
        seen = self.seen()
        assert {body: count for body, count in seen.items() if count > 1} == {}
        assert self.recalled & set(seen) == set()
        assert set(seen) <= set(self.due)
        print(
            f"{len(self.due)} sent, {len(self.accepted)} accepted, {len(seen)} delivered, "
            f"{len(self.recalled)} of {len(self.asked_back)} taken back in time"
        )

    def seen(self) -> Counter[bytes]:
        """The bodies that consumers of the topic get."""
        return Counter(read_all(self.history, self.broker.broker_address).values())

    def check_times(self, scan: StoreScan) -> None:
        """Nothing came before it was due."""
        topic = self.history.topic.encode()
        early = {
            record.body: record.store_timestamp - self.due[record.body]
            for record in scan.records
            if record.topic == topic and record.store_timestamp < self.due[record.body]
        }
        assert early == {}
