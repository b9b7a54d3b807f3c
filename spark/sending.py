"""Batches on their way to brokers: several at once, but one at a time to each queue, so that a queue keeps the order.

A batch whose connection broke may or may not be stored; it is sent again, before anything else goes to its queue. That
is what at-least-once means, and what the keys of ``sink_keys`` let a reader mend.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

from mqcore.codes import STORED_CODES, RequestCode, ResponseCode
from mqcore.errors import BrokerError, FrameError, RemotingError, RemotingTimeoutError
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import AUTO_CREATE_TOPIC_KEY_TOPIC
from mqcore.readiness import wait_ready
from mqcore.spark.cluster import Cluster
from mqcore.spark.errors import NoQueueError, SinkError, TopicRouteError
from mqcore.spark.settings import SinkSettings
from mqcore.transport.link import BlockingAnswer, BlockingLink

logger = logging.getLogger(__name__)

NEW_TOPIC_QUEUES: Final = 4
"""Queues of a topic that a broker makes for its first message."""

PASSING_CODES: Final = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE}
)
"""Refusals after which the same batch may be taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One request: a batch, or a single message with its *properties* in the header. *row* is its first row."""

    queue: MessageQueue
    body: bytes
    row: int
    count: int
    is_batch: bool = True
    is_pinned: bool = False
    properties: str = ""
    sys_flag: int = 0
    flag: int = 0


class Sender:
    """Sends the work of one task. Used in a ``with``; ``finish`` waits until all is stored."""

    def __init__(self, settings: SinkSettings, partition: int) -> None:
        self._settings = settings
        self._partition = partition
        self._cluster = Cluster(settings.calling)
        self._retries = self._cluster.retries()
        self._links: dict[str, BlockingLink] = {}
        self._open = ExitStack()
        self._waiting: defaultdict[MessageQueue, deque[Work]] = defaultdict(deque)
        self._under_way: dict[int, tuple[Work, BlockingLink]] = {}
        self._busy: set[MessageQueue] = set()
        self.stored = 0

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            for link in self._links.values():
                link.close()
        with suppress(RemotingError):
            self._open.close()

    def queues(self, topic: str, row: int) -> Sequence[MessageQueue]:
        """Return the queues that *topic* may be written to, sorted; those it will have if a broker is to make it."""
        while True:
            try:
                counts = self._write_counts(topic)
                return [MessageQueue(topic, name, number) for name, count in counts for number in range(count)]
            except (RemotingError, FrameError, BrokerError, TopicRouteError) as error:
                self._pause(error, topic, row)

    def wait_for(self, queue: MessageQueue, row: int) -> None:
        """Return when *queue* can be written to. Raises SinkError when it cannot, even after the retries."""
        while True:
            try:
                if queue in self.queues_now(queue.topic):
                    return
                raise NoQueueError(queue.topic, queue.broker_name, queue.queue_id)
            except (RemotingError, FrameError, BrokerError, TopicRouteError, NoQueueError) as error:
                self._pause(error, queue.topic, row)

    def _write_counts(self, topic: str) -> list[tuple[str, int]]:
        if self._cluster.has_route(topic):
            return self._cluster.write_counts(topic)
        try:
            model = self._cluster.write_counts(AUTO_CREATE_TOPIC_KEY_TOPIC)
        except TopicRouteError:
            raise TopicRouteError(topic) from None
        return [(name, min(count, NEW_TOPIC_QUEUES)) for name, count in model]

    def submit(self, work: Work) -> None:
        """Take *work* over; waits while as much as the settings allow is not stored yet. Raises SinkError."""
        self._waiting[work.queue].append(work)
        self._send_waiting()
        while self._pending >= self._settings.sends_in_flight:
            self._take_answer()

    def finish(self) -> None:
        """Wait until everything is stored. Raises SinkError."""
        while self._pending:
            self._take_answer()

    @property
    def _pending(self) -> int:
        return len(self._under_way) + sum(map(len, self._waiting.values()))

    def _send_waiting(self) -> None:
        for queue in list(self._waiting):
            # A failure may give what waits here to another queue, so it is looked up each time.
            while self._waiting[queue] and queue not in self._busy:
                work = self._waiting[queue].popleft()
                try:
                    self._send(work)
                except (RemotingError, FrameError, BrokerError, TopicRouteError) as error:
                    self._waiting[queue].appendleft(work)
                    self._fail(error, None, work)

    def _send(self, work: Work) -> None:
        queue = work.queue
        if self._cluster.has_route(queue.topic):
            address = self._cluster.address(queue.topic, queue.broker_name)
        else:
            address = self._cluster.address(AUTO_CREATE_TOPIC_KEY_TOPIC, queue.broker_name)
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = self._open.enter_context(self._cluster.link(address))
        values = {
            "producer_group": self._settings.group,
            "topic": queue.topic,
            "default_topic": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "default_topic_queue_nums": NEW_TOPIC_QUEUES,
            "queue_id": queue.queue_id,
            "sys_flag": work.sys_flag,
            "born_timestamp": time.time_ns() // 1_000_000,
            "flag": work.flag,
            "properties": work.properties,
            "reconsume_times": 0,
            "unit_mode": False,
            "batch": work.is_batch,
            "bname": queue.broker_name,
        }
        code = RequestCode.SEND_BATCH_MESSAGE if work.is_batch else RequestCode.SEND_MESSAGE_V2
        command = self._cluster.request(code, values, work.body)
        try:
            link.send(command.encode(), 1)
        except RemotingError:
            # It may have gone out in part or in whole: the same as no answer.
            self._fail_link(link)
            raise
        self._under_way[command.opaque] = (work, link)
        self._busy.add(queue)

    def _take_answer(self) -> None:
        """Wait for one answer and act on it."""
        links = list({id(link): link for _, link in self._under_way.values()}.values())
        ready = [link for link in links if link.has_answer]
        if not ready and links:
            ready = wait_ready(links, self._cluster.timeout_s)
        if not ready:
            late = RemotingTimeoutError(f"no answer to a send in {self._cluster.timeout_s:g} s")
            for link in links:
                self._fail(late, link, self._first_of(link))
        else:
            link = ready[0]
            try:
                self._handle(link.receive())
            except (RemotingError, FrameError) as error:
                self._fail(error, link, self._first_of(link))
        self._send_waiting()

    def _first_of(self, link: BlockingLink) -> Work:
        return next(work for work, used in self._under_way.values() if used is link)

    def _handle(self, answer: BlockingAnswer) -> None:
        found = self._under_way.pop(answer.opaque, None)
        if found is None:
            return
        work, link = found
        self._busy.discard(work.queue)
        if answer.code in STORED_CODES:
            self._retries.ok()
            self.stored += work.count
            return
        if answer.code not in PASSING_CODES:
            raise self._error(work, answer.code, f"{answer.remark} ({link.address})")
        self._waiting[work.queue].appendleft(work)
        self._pause(BrokerError(answer.code, answer.remark, link.address), work.queue.topic, work.row, may_pass=True)

    def _fail(self, error: Exception, link: BlockingLink | None, work: Work) -> None:
        """Put back what was under way on *link*, and pause; SinkError when the retries are used up."""
        if link is not None:
            self._fail_link(link)
        self._pause(error, work.queue.topic, work.row)
        self._elsewhere(work.queue)

    def _fail_link(self, link: BlockingLink) -> None:
        link.close()
        for address in [address for address, used in self._links.items() if used is link]:
            del self._links[address]
        for opaque in [opaque for opaque, (_, used) in self._under_way.items() if used is link]:
            work, _ = self._under_way.pop(opaque)
            self._busy.discard(work.queue)
            self._waiting[work.queue].appendleft(work)

    def _elsewhere(self, queue: MessageQueue) -> None:
        """Give waiting work of a queue that cannot be reached to a queue of another broker, unless it is pinned."""
        try:
            others = [other for other in self.queues_now(queue.topic) if other.broker_name != queue.broker_name]
        except (RemotingError, FrameError, BrokerError, TopicRouteError):
            return
        if not others:
            return
        works = self._waiting[queue]
        self._waiting[queue] = deque(work for work in works if work.is_pinned)
        for number, work in enumerate(work for work in works if not work.is_pinned):
            other = others[number % len(others)]
            self._waiting[other].append(replace(work, queue=other))

    def queues_now(self, topic: str) -> Sequence[MessageQueue]:
        """As ``queues``, without retries."""
        return [MessageQueue(topic, name, at) for name, count in self._write_counts(topic) for at in range(count)]

    def _pause(self, error: Exception, topic: str, row: int, *, may_pass: bool = False) -> None:
        self._cluster.forget_routes()
        try:
            self._retries.failed(error, f"sending to {topic}", may_pass=may_pass)
        except Exception as last:
            code = last.code if isinstance(last, BrokerError) else -1
            raise SinkError(self._partition, row, topic, code, str(last)) from last

    def _error(self, work: Work, code: int, reason: str) -> SinkError:
        rows = f" (one of the rows {work.row} and up, {work.count} in a batch)" if work.count > 1 else ""
        return SinkError(self._partition, work.row, work.queue.topic, code, reason + rows)
