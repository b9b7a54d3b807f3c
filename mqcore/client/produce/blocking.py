"""The short way of a plain send: the calling thread writes the request and waits for the answer on a socket of its own.

It serves what is usual, a message to a topic whose route is known, without hooks; for everything else, and for further
attempts after a failure, ``send`` hands over to the event loop. A thread has its socket to itself for one send at a
time, so there is no table of answers. Sockets are kept for the next send, and belong to the process that made them.
"""

from __future__ import annotations

import logging
import math
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from mqcore import clock
from mqcore.client.model.counters import SendTally
from mqcore.client.model.latency import Histogram
from mqcore.client.model.messages import has_timer
from mqcore.client.model.outgoing import Outgoing
from mqcore.client.model.receipt import SendReceipt
from mqcore.client.model.selectors import Rotation
from mqcore.client.produce.core import ChooseQueue, FailedAttempt, ProducerCore, check_queue, chosen_by, warn_of_attempt
from mqcore.client.produce.receipts import receipt_of
from mqcore.client.session import forks
from mqcore.client.session.failures import is_doubtful, is_not_stored
from mqcore.client.session.waiting_sends import PendingSend
from mqcore.codes import STORED_CODES
from mqcore.errors import (
    BrokerError,
    MQError,
    ProtocolError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    TlsError,
)
from mqcore.protocol.codec import SendHead
from mqcore.protocol.command import next_opaque
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_retry_topic
from mqcore.transport.blocking import LEAST_TIMEOUT_S, connected, cut
from mqcore.transport.codec import Exchange
from mqcore.transport.exchange import SendAnswer
from mqcore.transport.sealed_exchange import SealedExchange
from mqcore.transport.signed_sends import SignedSendHead

if TYPE_CHECKING:
    from mqcore.client.model.messages import Message
    from mqcore.client.produce.batching import Batcher
    from mqcore.client.produce.inflight import InflightLimit
    from mqcore.client.session.routes import RouteTable
    from mqcore.client.settings.classes import ProducerSettings
    from mqcore.transport.signing import Signer

logger = logging.getLogger(__name__)

SOCKETS_MAX = 32
"""Connections to one broker at most: with more threads than that the event loop takes the rest, in batches."""

KEPT_IDLE_S = 60.0
"""A socket that nobody has needed for so long is closed; the broker would do it after 120 s."""

FOLD_AT = 64
"""So many sends of a line are counted together."""

TIDY_EVERY_S = 1.0
"""How often, at most, a send looks for such sockets."""


AnyHead = SendHead | SignedSendHead


class Line(PendingSend):
    """One connection and the exchange on it."""

    __slots__ = ("_socket", "exchange", "sends", "took", "used_s")

    def __init__(self, address: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(address)
        self._socket = connected(address, timeout_s, tls)
        self.exchange: Exchange | SealedExchange
        if isinstance(self._socket, ssl.SSLSocket):
            self.exchange = SealedExchange(self._socket, address)
        else:
            self.exchange = Exchange(self._socket.fileno(), address)
        self.used_s = 0.0
        self.sends: dict[str, Histogram] = {}
        """What the sends that were stored took, by topic: under the lock of the lines."""
        self.took: defaultdict[str, list[float]] = defaultdict(list)
        """The last of them, seconds, which the line's thread alone notes: so a send takes no lock, and no histogram."""

    def fold(self, topic: str) -> None:
        """Under the lock of the lines: count what *took* has of *topic*."""
        self.sends.setdefault(topic, Histogram()).add_each(self.took[topic])
        self.took[topic].clear()

    def break_off(self) -> None:
        """Let the thread that waits here for its answer fail; to close the socket would not wake it."""
        with suppress(OSError):  # it may be over
            cut(self._socket)

    def close(self) -> None:
        self._socket.close()


class Lines:
    """The connections of one producer: a thread takes one, uses it alone, and puts it back or closes it.

    What is free is taken and put back without the lock, as a list's ``append`` and ``pop`` are whole in themselves.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._free: defaultdict[str, list[Line]] = defaultdict(list)  # the last used at the end
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._open: set[Line] = set()
        self._sends_before: dict[str, Histogram] = {}  # of lines that have been closed
        self._lock = threading.Lock()
        self._is_closed = False
        self._tidy_s = 0.0

    @property
    def count(self) -> int:
        with self._lock:
            return sum(self._counts.values())

    @property
    def sends(self) -> dict[str, Histogram]:
        """What the sends that were stored took, by topic."""
        found: dict[str, Histogram] = {}
        with self._lock:
            for sends in (self._sends_before, *(line.sends for line in self._open)):
                for topic, times in sends.items():
                    found.setdefault(topic, Histogram()).add_all(times)
            for line in self._open:
                for topic, took in list(line.took.items()):
                    found.setdefault(topic, Histogram()).add_each(list(took))
        return {topic: times for topic, times in found.items() if times.count}

    def fold(self, line: Line, topic: str) -> None:
        """Count what *line*, which the calling thread has, has noted of *topic*."""
        with self._lock:
            line.fold(topic)

    def take(self, address: str, deadline_s: float) -> Line | None:
        """Return a free connection to *address*, or a new one; None when there are SOCKETS_MAX.

        To connect takes at most until *deadline_s* of the monotonic clock. Raises RemotingConnectError and TlsError.
        """
        free = self._free[address]
        if free:
            try:
                return free.pop()
            except IndexError:
                pass  # another thread has taken it since
        with self._lock:
            if self._is_closed or self._counts[address] >= SOCKETS_MAX:
                return None
            self._counts[address] += 1
        try:
            line = Line(address, deadline_s - clock.monotonic_s(), self._tls)
        except BaseException:
            with self._lock:
                self._counts[address] -= 1
            raise
        with self._lock:
            self._open.add(line)
        return line

    def put_back(self, address: str, line: Line, now_s: float | None = None) -> None:
        """Keep *line* for the next send. *now_s* is the time of the monotonic clock, if it is known."""
        if now_s is None:
            now_s = clock.monotonic_s()
        line.used_s = now_s
        self._free[address].append(line)
        # Whoever closes says so first and empties the lists then: what comes later is seen here.
        if self._is_closed:
            self._close_idle(math.inf)
        elif now_s >= self._tidy_s:
            self._tidy_s = now_s + TIDY_EVERY_S
            self._close_idle(now_s - KEPT_IDLE_S)

    def discard(self, address: str, line: Line) -> None:
        """Close *line*, on which an answer may still be coming."""
        line.close()
        with self._lock:
            self._counts[address] -= 1
            self._open.discard(line)
            for topic in line.took:
                line.fold(topic)
            for topic, times in line.sends.items():
                self._sends_before.setdefault(topic, Histogram()).add_all(times)
            line.sends = {}

    def close(self) -> None:
        """Close what is free now, and what is in use when it is put back."""
        self._is_closed = True
        self._close_idle(math.inf)

    def _close_idle(self, used_before_s: float) -> None:
        """Close what is free and was last used before *used_before_s*."""
        for address, free in list(self._free.items()):
            with suppress(IndexError):  # threads go on taking and putting back
                while free[0].used_s < used_before_s:
                    line = free.pop(0)
                    if line.used_s < used_before_s:
                        self.discard(address, line)
                    else:
                        free.append(line)


class Plan:
    """What is the same in all sends to one topic: its queues, and the header for each."""

    __slots__ = ("_heads", "_heads_of_own", "rotation")

    def __init__(self, rotation: Rotation, heads: Mapping[MessageQueue, AnyHead]) -> None:
        self.rotation = rotation
        self._heads = heads
        # By identity: to hash a queue takes longer than to write the header.
        self._heads_of_own = {id(queue): heads[queue] for queue in rotation.queues}

    def head(self, queue: MessageQueue) -> AnyHead | None:
        """Return the header of sends to *queue*, or None when the topic has no such queue now."""
        return self._heads_of_own.get(id(queue)) or self._heads.get(queue)


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
        tally: SendTally,
        *,
        tls: ssl.SSLContext | None = None,
        signer: Signer | None = None,
    ) -> None:
        """*tls* is what its connections go by, plain ones without; *signer* signs its requests."""
        self._signer = signer
        self._core = core
        self._tally = tally
        self._routes = routes
        self._settings = settings
        self._inflight = inflight
        self._batcher = batcher
        self._outgoing = outgoing
        self._lines = Lines(tls)
        self._plans: dict[str, Plan] = {}
        # Whoever lets messages linger wants batches, and those settings need a second look at the answer or the port.
        self._may_be_used = not (
            settings.linger_s or settings.vip_channel or settings.retry_another_broker_when_not_store_ok
        )
        self._is_usable = False
        forks.watch(self)

    def open(self) -> None:
        """Let sends begin: before, they all go the long way, on which they are refused."""
        self._is_usable = self._may_be_used

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child: leave the parent's connections alone. What the child may send goes by the event loop."""
        self._is_usable = False
        forks.keep(self._lines)

    def send(
        self, message: Message, choose: ChooseQueue | None, timeout_s: float | None
    ) -> SendReceipt | Interrupted | None:
        """Send *message* and return its receipt; None when nothing was sent and the event loop has to do it all.

        Interrupted when a first attempt failed and others may follow. Raises what ``Producer.send`` raises.
        """
        plan = self.plan(message.topic)
        if plan is None or (timeout_s is not None and timeout_s <= 0):
            return None
        if choose is not None and not self._batcher.is_idle:
            return None  # what was given before, perhaps to the same queue, is stored before
        outgoing = self._outgoing(message)
        if outgoing.is_reply or (message.properties and has_timer(message.properties)):
            return None  # the long way reads more of the answer
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
            if choose is not None and is_not_stored(answer.error) and answer.left_s > 0:
                return None
            return self._after(answer, outgoing, choose)
        return receipt_of(answer, queue, outgoing.msg_id)

    def _after(self, failed: FailedAttempt, outgoing: Outgoing, choose: ChooseQueue | None) -> Interrupted:
        error = failed.error
        is_final = isinstance(error, BrokerError) and error.code not in self._settings.retry_response_codes
        if choose is not None or is_final:
            if is_doubtful(error):
                self._core.doubt_soon(error.broker)
            self._tally.add(outgoing.topic, 1, clock.monotonic_s() - failed.begun_s, error)
            raise error
        warn_of_attempt(self._core.group, failed.queue, 1, error)
        return Interrupted(outgoing, failed)

    def plan(self, topic: str) -> Plan | None:
        """Return what is known of *topic*, or None when a send has to go the long way."""
        core = self._core
        if not self._is_usable or core.hooks.any_of_sends or core.faults.enabled:
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
        head = plan.head(queue)
        address = self._routes.master_address(queue.broker_name)
        if head is None or address is None:
            return None
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        begun_s = clock.monotonic_s()
        deadline_s = begun_s + timeout_s
        try:
            answer = self._exchange(head, address, outgoing, timeout_s, begun_s)
        except TlsError as error:
            logger.debug("%s", error)
            return None
        except RemotingConnectError as error:
            logger.debug("%s", error)
            left_s = deadline_s - clock.monotonic_s()
            # One that is silent may have taken all the time there was.
            return None if left_s > 0 else FailedAttempt(queue, error, left_s, begun_s)
        except RemotingError as error:
            return FailedAttempt(queue, error, deadline_s - clock.monotonic_s(), begun_s)
        except ProtocolError as error:
            self._tally.add(outgoing.topic, 1, clock.monotonic_s() - begun_s, error)
            raise
        if answer is None or answer[0] in STORED_CODES:
            return answer
        refused = BrokerError(answer[0], answer[1] or "", address).at(topic=outgoing.topic)
        return FailedAttempt(queue, refused, deadline_s - clock.monotonic_s(), begun_s)

    @property
    def sends(self) -> dict[str, Histogram]:
        """What the sends that were stored took, by topic. What has failed this way is on the tally."""
        return self._lines.sends

    @property
    def connections(self) -> int:
        """How many connections there are now, in use or kept."""
        return self._lines.count

    def close(self) -> None:
        """Send nothing more, and close the connections."""
        self._is_usable = False
        self._lines.close()

    def _exchange(
        self, head: AnyHead, address: str, outgoing: Outgoing, timeout_s: float, begun_s: float
    ) -> SendAnswer | None:
        deadline_s = begun_s + timeout_s
        while True:
            line = self._lines.take(address, deadline_s)
            if line is None:
                return None
            is_good, is_fresh, now_s = False, not line.used_s, None
            self._core.waiting_sends.begin(line)
            if is_fresh:
                left_s = max(deadline_s - clock.monotonic_s(), LEAST_TIMEOUT_S)
            else:
                left_s = timeout_s  # it took no time to get, and has this timeout set from the last send
            try:
                answer = line.exchange.send(
                    head,
                    next_opaque(),
                    outgoing.sys_flag,
                    clock.now_ms(),
                    outgoing.flag,
                    outgoing.properties,
                    outgoing.body,
                    left_s,
                )
                is_good = answer is not None
                if answer is not None and (not answer[0] or answer[0] in STORED_CODES):  # 0 is what nearly all are
                    now_s = clock.monotonic_s()
                    took = line.took[outgoing.topic]
                    took.append(now_s - begun_s)
                    if len(took) >= FOLD_AT:
                        self._lines.fold(line, outgoing.topic)
                    if self._tally.watch is not None:
                        self._tally.watch(outgoing.topic, 1, now_s - begun_s, None)
            except MQError as error:
                error.at(broker=address, topic=outgoing.topic)
                raise
            finally:
                self._core.waiting_sends.end(line, is_answered=is_good)
                if is_good:
                    self._lines.put_back(address, line, now_s)
                else:
                    self._lines.discard(address, line)
            if answer is not None:
                return answer
            # The broker had closed the connection while nobody used it, which is no failure: take the next one. To be
            # closed as soon as it is made is one.
            if is_fresh:
                return None
            if clock.monotonic_s() >= deadline_s:
                raise RemotingTimeoutError(f"connecting to {address} took the whole {timeout_s * 1000:.0f} ms")

    def _make_plan(self, topic: str, rotation: Rotation) -> Plan:
        return Plan(rotation, {queue: self._head_to(queue, topic) for queue in rotation.queues})

    def _head_to(self, queue: MessageQueue, topic: str) -> AnyHead:
        settings, signer = self._settings, self._signer
        group, wire_topic = self._core.wire_names(topic)
        default = settings.create_topic_key, settings.default_topic_queue_nums
        if signer is None:
            return SendHead(group, wire_topic, *default, queue.queue_id, queue.broker_name)
        return SignedSendHead(
            signer.identity, signer.secret, group, wire_topic, *default, queue.queue_id, queue.broker_name
        )
