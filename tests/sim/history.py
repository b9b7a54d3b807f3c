"""What happened in a simulated world, and the promises that are looked at while it happens."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mqcore.client.model.messages import ReceivedMessage
from mqcore.codes import PullSysFlag, RequestCode
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import retry_topic
from mqcore.transport.connection import Connection
from tests.sim.brokers import SimBroker

if TYPE_CHECKING:
    from tests.sim.world import Member


LOCKS_UNKNOWN_S = 45.0
"""The pause before a broker is there again, the 20 s until locks are renewed, and the handlers under way."""


@dataclass(eq=False)
class Delivery:
    """One call of a handler."""

    member: Member
    queue: MessageQueue
    offset: int
    body: bytes
    times: int
    begin_s: float
    is_new: bool
    """Whether nobody of the group had done this message when it began."""
    end_s: float = -1.0
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.end_s >= 0 and self.error is None


@dataclass(frozen=True)
class Acknowledged:
    topic: str
    queue: MessageQueue
    offset: int
    time_s: float


@dataclass(frozen=True)
class Request:
    """A request as a broker got it."""

    time_s: float
    broker: str
    client_ip: str
    code: int
    fields: dict[str, str]


@dataclass
class Progress:
    """How far a group's handlers have come in one queue: everything before ``offset`` has ended once."""

    offset: int = 0
    beyond: set[int] = field(default_factory=set)

    def note(self, offset: int) -> None:
        if offset >= self.offset:
            self.beyond.add(offset)
        while self.offset in self.beyond:
            self.beyond.remove(self.offset)
            self.offset += 1


@dataclass
class Work:
    """How long handlers of a group, one or many, have been at work on what the group had not done before."""

    total_s: float = 0.0
    hands: int = 0
    since_s: float = 0.0

    def begins(self, now_s: float) -> None:
        if not self.hands:
            self.since_s = now_s
        self.hands += 1

    def ends(self, now_s: float) -> None:
        self.hands -= 1
        if not self.hands:
            self.total_s += now_s - self.since_s


class Broken(AssertionError):
    """A promise that does not hold."""


class History:
    """Collects what is seen. ``broken`` are the promises that were found broken on the way."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self.acknowledgements: dict[bytes, Acknowledged] = {}
        self.deliveries: defaultdict[str, defaultdict[bytes, list[Delivery]]] = defaultdict(lambda: defaultdict(list))
        self.requests: list[Request] = []
        self.broken: list[str] = []
        self.keeps_requests = False
        self._running: dict[Delivery, None] = {}
        self._progress: defaultdict[tuple[str, MessageQueue], Progress] = defaultdict(Progress)
        self._work: defaultdict[str, Work] = defaultdict(Work)
        self._commits: dict[tuple[str, MessageQueue], tuple[str, int]] = {}
        """Who has asked for the last one of each queue, and what."""
        self._stored: dict[tuple[str, MessageQueue], int] = {}
        self._forgot_locks_s: dict[str, float] = {}

    def note_broken(self, what: str) -> None:
        self.broken.append(f"{self._time_s():.3f} s: {what}")

    def check(self) -> None:
        """Raise Broken if a promise was found broken."""
        if self.broken:
            raise Broken("\n".join(self.broken[:5]))

    # Producers.

    def acknowledged(self, topic: str, body: bytes, receipt: Any) -> None:
        queue = receipt.queue
        self.acknowledgements[body] = Acknowledged(topic, queue, receipt.offset, self._time_s())

    def missing(self, group: str, topics: tuple[str, ...] = ("T",)) -> list[bytes]:
        """The acknowledged messages that no handler of *group* has done."""
        done = self.deliveries[group]
        return [
            body
            for body, sent in self.acknowledgements.items()
            if sent.topic in topics and not any(delivery.is_done for delivery in done.get(body, ()))
        ]

    # Handlers.

    def begins(self, member: Member, message: ReceivedMessage) -> Delivery:
        queue, body = message.queue, bytes(message.body)
        before = self.deliveries[member.group][body]
        is_new = not any(delivery.is_done for delivery in before)
        offset, times = message.ext.queue_offset, message.reconsume_times
        delivery = Delivery(member, queue, offset, body, times, self._time_s(), is_new)
        before.append(delivery)
        if getattr(member.settings, "orderly", False):
            for other in self._running:
                if other.queue == queue and other.member.group == member.group and self._locks_count(queue):
                    self.note_broken(f"{member.name} and {other.member.name} consume {queue} at once")
        self._running[delivery] = None
        if is_new:
            self._work[member.group].begins(delivery.begin_s)
        return delivery

    def _locks_count(self, queue: MessageQueue) -> bool:
        """Whether locks of *queue* are known to its broker. They do not survive it, as in RocketMQ: who had one goes on
        until it is to be renewed, and somebody else may get it meanwhile.
        """
        return self._time_s() > self._forgot_locks_s.get(queue.broker_name, -LOCKS_UNKNOWN_S) + LOCKS_UNKNOWN_S

    def ends(self, delivery: Delivery, error: BaseException | None) -> None:
        self._no_longer_runs(delivery)
        delivery.end_s, delivery.error = self._time_s(), error
        if not isinstance(error, asyncio.CancelledError):
            self._progress[delivery.member.group, delivery.queue].note(delivery.offset)

    def forget_member(self, member: Member) -> None:
        """*member* dies now: what it has in hand is never done."""
        for delivery in [delivery for delivery in self._running if delivery.member is member]:
            self._no_longer_runs(delivery)

    def _no_longer_runs(self, delivery: Delivery) -> None:
        if delivery in self._running:
            del self._running[delivery]
            if delivery.is_new:
                self._work[delivery.member.group].ends(self._time_s())

    def worked_s(self, group: str) -> float:
        """How long at least one handler of *group* has had in hand what the group had not done before.

        What comes again although it was done is no work, so a product that only repeats itself gains no time by it.
        """
        work = self._work[group]
        return work.total_s + (self._time_s() - work.since_s if work.hands else 0.0)

    # Brokers.

    def watch(self, broker: SimBroker) -> None:
        broker.on_commit = lambda group, topic, queue_id, offset: self._on_commit(
            group, MessageQueue(topic, broker.name, queue_id), offset
        )
        broker.on_request = lambda connection, command: self._on_request(broker, connection, command)

    def broker_ends(self, broker: SimBroker) -> None:
        """It forgets its locks. Its offsets may go back to what was written: owners may begin there."""
        self._forgot_locks_s[broker.name] = self._time_s()
        self._commits = {key: last for key, last in self._commits.items() if key[1].broker_name != broker.name}
        self._stored = {key: offset for key, offset in self._stored.items() if key[1].broker_name != broker.name}

    def _on_commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        self._stored[group, queue] = offset
        progress = self._progress[group, queue].offset
        if offset > progress:
            self.note_broken(f"{group} has committed {offset} in {queue}, but handlers have only come to {progress}")

    def _on_request(self, broker: SimBroker, connection: Connection, command: RemotingCommand) -> None:
        fields = command.ext_fields or {}
        ip = connection.remote_address.rpartition(":")[0]
        if self.keeps_requests:
            self.requests.append(Request(self._time_s(), broker.name, ip, command.code, dict(fields)))
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
            self._on_question(
                fields["consumerGroup"], MessageQueue(fields["topic"], broker.name, int(fields["queueId"]))
            )
            return
        commits = command.code == RequestCode.UPDATE_CONSUMER_OFFSET or (
            command.code == RequestCode.PULL_MESSAGE and int(fields.get("sysFlag", 0)) & PullSysFlag.COMMIT_OFFSET
        )
        if not commits:
            return
        queue = MessageQueue(fields["topic"], broker.name, int(fields["queueId"]))
        key, offset = (fields["consumerGroup"], queue), int(fields["commitOffset"])
        owner, before = self._commits.get(key, (ip, -1))
        if owner == ip and offset < before:
            self.note_broken(f"{ip} of {key[0]} commits {offset} in {queue} after {before}")
        self._commits[key] = ip, offset

    def _on_question(self, group: str, queue: MessageQueue) -> None:
        """Who asks begins at what is stored: what was asked for by a pull that was refused is not."""
        if (key := (group, queue)) in self._commits:
            self._commits[key] = self._commits[key][0], self._stored.get(key, -1)

    def asked(self, code: RequestCode) -> list[Request]:
        """The requests with *code*, in order; ``keeps_requests`` has to be on."""
        return [request for request in self.requests if request.code == code]


__all__ = ["Broken", "Delivery", "History", "Request", "retry_topic"]
