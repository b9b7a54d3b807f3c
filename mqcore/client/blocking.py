"""The short way of a plain send: the calling thread writes the request and waits for the answer on a socket of its own.

It serves what is usual, a message to a topic whose route is known, without hooks; for everything else, and for further
attempts after a failure, ``send`` hands over to the event loop. A thread has its socket to itself for one send at a
time, so there is no table of answers. Sockets are kept for the next send, and belong to the process that made them.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mqcore import clock
from mqcore.client.codec import Exchange, Maker
from mqcore.client.exchange import STORED_CODES, SendAnswer
from mqcore.client.messages import SendReceipt, SendStatus
from mqcore.client.producer_core import ChooseQueue, FailedAttempt, Outgoing, ProducerCore, check_queue, chosen_by
from mqcore.client.selectors import Rotation
from mqcore.errors import BrokerError, MQError, RemotingError, RemotingTimeoutError
from mqcore.protocol.codec import SendHead
from mqcore.protocol.command import next_opaque
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_retry_topic
from mqcore.remoting.address import parse_address

if TYPE_CHECKING:
    from mqcore.client.batching import Batcher
    from mqcore.client.inflight import InflightLimit
    from mqcore.client.messages import Message
    from mqcore.client.routes import RouteTable
    from mqcore.client.settings import ProducerSettings

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.0

SOCKETS_MAX = 32
"""Connections to one broker at most: with more threads than that the event loop takes the rest, in batches."""

STATUSES = {int(status): status for status in SendStatus}

_receipts = Maker(SendReceipt)

KEPT_IDLE_S = 60.0
"""A socket that nobody has needed for so long is closed; the broker would do it after 120 s."""


class Line:
    """One connection and the exchange on it."""

    __slots__ = ("_socket", "exchange", "used_s")

    def __init__(self, address: str, timeout_s: float) -> None:
        self._socket = socket.create_connection(parse_address(address), timeout_s)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.exchange = Exchange(self._socket.fileno(), address)
        self.used_s = 0.0

    def close(self) -> None:
        self._socket.close()


class Lines:
    """The connections of one producer: a thread takes one, uses it alone, and puts it back or closes it."""

    def __init__(self) -> None:
        self._free: defaultdict[str, list[Line]] = defaultdict(list)  # the last used at the end
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def count(self) -> int:
        with self._lock:
            return sum(self._counts.values())

    def take(self, address: str, timeout_s: float) -> Line | None:
        """Return a free connection to *address*, or a new one; None when there are SOCKETS_MAX. Raises OSError."""
        with self._lock:
            free = self._free[address]
            if free:
                return free.pop()
            if self._is_closed or self._counts[address] >= SOCKETS_MAX:
                return None
            self._counts[address] += 1
        try:
            return Line(address, timeout_s)
        except BaseException:
            with self._lock:
                self._counts[address] -= 1
            raise

    def put_back(self, address: str, line: Line) -> None:
        now_s = line.used_s = time.monotonic()
        with self._lock:
            free = self._free[address]
            dropped = [line] if self._is_closed else []
            if not dropped:
                free.append(line)
                while now_s - free[0].used_s > KEPT_IDLE_S:
                    dropped.append(free.pop(0))
            self._counts[address] -= len(dropped)
        for line in dropped:
            line.close()

    def discard(self, address: str, line: Line) -> None:
        """Close *line*, on which an answer may still be coming."""
        line.close()
        with self._lock:
            self._counts[address] -= 1

    def close(self) -> None:
        """Close what is free now, and what is in use when it is put back."""
        with self._lock:
            self._is_closed = True
            for address, free in self._free.items():
                self._counts[address] -= len(free)
                for line in free:
                    line.close()
                free.clear()


class Plan:
    """What is the same in all sends to one topic: its queues, and the header for each."""

    __slots__ = ("heads", "rotation")

    def __init__(self, rotation: Rotation, heads: dict[MessageQueue, SendHead]) -> None:
        self.rotation = rotation
        self.heads = heads


class Interrupted(NamedTuple):
    """A message whose first attempt failed, for the event loop to go on with."""

    outgoing: Outgoing
    failed: FailedAttempt


class BlockingSender:
    """The short way of one producer. ``send`` may be called from any thread of the process that made it."""

    def __init__(
        self,
        core: ProducerCore,
        routes: RouteTable,
        settings: ProducerSettings,
        inflight: InflightLimit,
        batcher: Batcher,
        outgoing: Callable[[Message], Outgoing],
    ) -> None:
        self._core = core
        self._routes = routes
        self._settings = settings
        self._inflight = inflight
        self._batcher = batcher
        self._outgoing = outgoing
        self._lines = Lines()
        self._plans: dict[str, Plan] = {}
        self._pid = os.getpid()
        # Whoever lets messages linger wants batches, and those settings need a second look at the answer or the port.
        self._is_usable = not (
            settings.linger_s or settings.vip_channel or settings.retry_another_broker_when_not_store_ok
        )

    def send(
        self, message: Message, choose: ChooseQueue | None, timeout_s: float | None
    ) -> SendReceipt | Interrupted | None:
        """Send *message* and return its receipt; None when nothing was sent and the event loop has to do it all.

        Interrupted when a first attempt failed and others may follow. Raises what ``Producer.send`` raises.
        """
        plan = self.plan(message.topic)
        if plan is None:
            return None
        if choose is not None and not self._batcher.is_idle:
            return None  # what was given before, perhaps to the same queue, is stored before
        outgoing = self._outgoing(message)
        if outgoing.is_reply:
            return None
        if choose is None:
            queue = plan.rotation.next()
        else:
            queue = chosen_by(choose, plan.rotation.queues)
            check_queue(outgoing, queue)
        size = len(outgoing.body)
        if not self._inflight.try_acquire(size):
            return None
        try:
            answer = self.attempt(plan, queue, outgoing, timeout_s)
        finally:
            self._inflight.release(size)
        if answer is None:
            return None
        if isinstance(answer, FailedAttempt):
            return self._after(answer, outgoing, choose)
        return receipt_of(answer, queue, outgoing.msg_id)

    def _after(self, failed: FailedAttempt, outgoing: Outgoing, choose: ChooseQueue | None) -> Interrupted:
        error = failed.error
        is_final = isinstance(error, BrokerError) and error.code not in self._settings.retry_response_codes
        if choose is not None or is_final:
            raise error
        logger.warning("send failed topic=%s queue=%s attempt=1: %s", outgoing.topic, failed.queue, error)
        return Interrupted(outgoing, failed)

    def plan(self, topic: str) -> Plan | None:
        """Return what is known of *topic*, or None when a send has to go the long way."""
        core = self._core
        if not self._is_usable or core.hooks.any_of_sends or core.faults.enabled or self._pid != os.getpid():
            return None
        rotation = self._routes.known_rotation(topic)
        if rotation is None:
            return None
        plan = self._plans.get(topic)
        if plan is None or plan.rotation is not rotation:
            if is_retry_topic(topic):
                return None
            plan = self._plans[topic] = self._make_plan(topic, rotation)
        return plan

    def attempt(
        self, plan: Plan, queue: MessageQueue, outgoing: Outgoing, timeout_s: float | None
    ) -> SendAnswer | FailedAttempt | None:
        """Send once to *queue* and return the answer of a broker that stored the message.

        None when nothing was sent: no address, no connection, no room. Raises ProtocolError when the message cannot
        travel, or the answer cannot be read.
        """
        head = plan.heads.get(queue)
        address = self._routes.master_address(queue.broker_name)
        if head is None or address is None:
            return None
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        begin_s = time.monotonic()
        try:
            answer = self._exchange(head, address, outgoing, timeout_s)
        except RemotingError as error:
            return FailedAttempt(queue, error, begin_s + timeout_s - time.monotonic())
        except OSError as error:
            logger.debug("connect failed address=%s: %s", address, error)
            return None
        if answer is None or answer[0] in STORED_CODES:
            return answer
        refused = BrokerError(answer[0], answer[1] or "", address).at(topic=outgoing.topic)
        return FailedAttempt(queue, refused, begin_s + timeout_s - time.monotonic())

    @property
    def connections(self) -> int:
        """How many connections there are now, in use or kept."""
        return self._lines.count

    def close(self) -> None:
        """Send nothing more, and close the connections."""
        self._is_usable = False
        self._lines.close()

    def _exchange(self, head: SendHead, address: str, outgoing: Outgoing, timeout_s: float) -> SendAnswer | None:
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            line = self._lines.take(address, min(max(left_s, 0.001), CONNECT_TIMEOUT_S))
            if line is None:
                return None
            is_good, is_fresh = False, not line.used_s
            try:
                answer = line.exchange.send(
                    head,
                    next_opaque(),
                    outgoing.sys_flag,
                    clock.now_ms(),
                    outgoing.flag,
                    outgoing.properties,
                    outgoing.body,
                    timeout_s,
                )
                is_good = answer is not None
            except MQError as error:
                error.at(broker=address, topic=outgoing.topic)
                raise
            finally:
                if is_good:
                    self._lines.put_back(address, line)
                else:
                    self._lines.discard(address, line)
            if answer is not None:
                return answer
            # The broker had closed the connection while nobody used it, which is no failure: take the next one. To be
            # closed as soon as it is made is one.
            if is_fresh:
                return None
            if time.monotonic() >= deadline_s:
                raise RemotingTimeoutError(f"connecting to {address} took the whole {timeout_s * 1000:.0f} ms")

    def _make_plan(self, topic: str, rotation: Rotation) -> Plan:
        settings, group = self._settings, self._core.group
        heads = {
            queue: SendHead(
                group,
                topic,
                settings.create_topic_key,
                settings.default_topic_queue_nums,
                queue.queue_id,
                queue.broker_name,
            )
            for queue in rotation.queues
        }
        return Plan(rotation, heads)


def receipt_of(answer: SendAnswer, queue: MessageQueue, msg_id: str) -> SendReceipt:
    """Return what the sender of one message gets to see of a broker's answer."""
    code, _, offset_msg_id, queue_id, queue_offset, transaction_id, region_id, trace_on = answer
    receipt: SendReceipt = _receipts.make(
        STATUSES[code],
        msg_id,
        offset_msg_id,
        queue if queue.queue_id == queue_id else MessageQueue(queue.topic, queue.broker_name, queue_id),
        queue_offset,
        transaction_id,
        region_id or "DefaultRegion",
        trace_on != "false",
    )
    return receipt
