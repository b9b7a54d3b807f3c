"""What producers were told and what readers saw, and the laws between the two.

Every message carries (run, producer, sequence) and a filler that follows from them, and is sent once: what was not
answered is never sent again. So a body that is there twice, that nobody sent, or that differs in one byte was made by
the broker.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from mqcore.codes import RequestCode, ResponseCode, SerializeType
from mqcore.errors import ProtocolError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import MessageExt
from tests.fault.talker import (
    Talker,
    answer_request,
    asker_heart_beat,
    batch_request,
    pull_request,
    pulled,
    send_request,
)

PAUSE_S = 0.01
BURST_PAUSE_MAX_S = 0.05
READ_DEADLINE_S = 60.0
REPLY_TIMEOUT_S = 60.0
FOLLOW_SUSPEND_MS = 300
BATCH_SHARE = 0.2
BATCH_MAX = 5

READABLE_CODES = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}

Place = tuple[int, int]
"""Queue id and queue offset."""


def make_body(run: str, producer: int, sequence: int, size_max: int) -> bytes:
    """The body of one message, of a size that follows from its number."""
    filler = random.Random(f"{run}/{producer}/{sequence}")
    return f"{run}/{producer}/{sequence}/".encode() + filler.randbytes(filler.randrange(size_max + 1))


def key_of(body: bytes) -> str:
    """The (run, producer, sequence) of a body, which is also the message's key."""
    return b"/".join(body.split(b"/", 3)[:3]).decode("ascii", "replace")


@dataclass(slots=True)
class History:
    """One topic's history. Filled by several threads; the checks run when they are still."""

    run: str
    topic: str
    queues: int
    sent: dict[bytes, float] = field(default_factory=dict)  # body to when it was sent, monotonic seconds
    acked: dict[Place, bytes] = field(default_factory=dict)
    refused: dict[int, int] = field(default_factory=dict)
    unanswered: int = 0
    newest_acked: float = 0.0  # when the newest message was sent that was acknowledged
    newest_seen: float = 0.0  # and that was read
    seen: dict[Place, bytes] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note_sent(self, bodies: list[bytes]) -> None:
        now = time.monotonic()
        with self._lock:
            self.sent.update(dict.fromkeys(bodies, now))

    def note_acked(self, queue_id: int, queue_offset: int, body: bytes) -> None:
        with self._lock:
            before = self.acked.setdefault((queue_id, queue_offset), body)
            if before is not body:
                self.broken.append(
                    f"queue {queue_id} offset {queue_offset} was given to {key_of(before)} and to {key_of(body)}"
                )
            self.newest_acked = max(self.newest_acked, self.sent[body])

    def note_refused(self, code: int) -> None:
        with self._lock:
            self.refused[code] = self.refused.get(code, 0) + 1

    def note_broken(self, what: str) -> None:
        with self._lock:
            self.broken.append(what)

    def note_unanswered(self, count: int) -> None:
        with self._lock:
            self.unanswered += count

    def note_read(self, message: MessageExt) -> None:
        """A reader got *message*. What stands at a place once read may never change."""
        place = (message.queue_id, message.queue_offset)
        with self._lock:
            before = self.seen.setdefault(place, message.body)
            self.newest_seen = max(self.newest_seen, self.sent.get(message.body, 0.0))
            if before != message.body:
                self.broken.append(f"queue {place[0]} offset {place[1]} was read as {key_of(before)} and then as "
                                   f"{key_of(message.body)}")  # fmt: skip

    @property
    def acked_count(self) -> int:
        return len(self.acked)

    def acked_end(self, queue_id: int) -> int:
        """The offset behind the last acknowledged message of a queue."""
        with self._lock:
            return max((offset + 1 for queue, offset in self.acked if queue == queue_id), default=0)

    def forget_lost(self) -> None:
        """After a loss that was allowed: what is there now is what counts."""
        with self._lock:
            self.acked.clear()
            self.seen.clear()

    def forget_reads(self) -> None:
        """Before a slave alone is looked at: its master's readers may have seen what it never got."""
        with self._lock:
            self.seen.clear()

    def summary(self) -> str:
        return (
            f"run={self.run} sent={len(self.sent)} acked={len(self.acked)} unanswered={self.unanswered} "
            f"refused={self.refused} read={len(self.seen)}"
        )

    def check(self, read: dict[Place, bytes], *, in_order: bool = True, is_durable: bool = True) -> None:
        """Hold *read*, all queues from 0 to their ends, against what producers and earlier readers were told.

        Without *is_durable* the end of what was acknowledged may be missing, and nothing else may be wrong.
        """
        broken = list(self.broken)
        if is_durable:
            broken += self._lost(read)
            broken += self._changed(read)
        broken += self._gaps(read)
        broken += self._invented(read)
        if in_order:
            broken += self._disordered(read)
        if broken:
            raise AssertionError(f"{len(broken)} promises broken ({self.summary()}):\n" + "\n".join(broken[:20]))

    def _lost(self, read: dict[Place, bytes]) -> list[str]:
        return [
            f"acknowledged and lost: {key_of(body)} at queue {place[0]} offset {place[1]}"
            for place, body in self.acked.items()
            if read.get(place) != body
        ]

    def _changed(self, read: dict[Place, bytes]) -> list[str]:
        return [
            f"read before and gone or different now: {key_of(body)} at queue {place[0]} offset {place[1]}"
            for place, body in self.seen.items()
            if read.get(place) != body
        ]

    def _gaps(self, read: dict[Place, bytes]) -> list[str]:
        broken = []
        for queue_id in range(self.queues):
            offsets = sorted(offset for queue, offset in read if queue == queue_id)
            if offsets != list(range(len(offsets))):
                missing = sorted(set(range(offsets[-1] + 1)) - set(offsets))
                broken.append(f"queue {queue_id} has no message at offsets {missing[:10]}")
        return broken

    def _invented(self, read: dict[Place, bytes]) -> list[str]:
        broken = []
        places: dict[bytes, Place] = {}
        for place, body in read.items():
            if body not in self.sent:
                broken.append(f"nobody sent what is at queue {place[0]} offset {place[1]}: {body[:60]!r}")
            elif body in places:
                broken.append(f"{key_of(body)} is there twice: at {places[body]} and at {place}")
            places[body] = place
        return broken

    def _disordered(self, read: dict[Place, bytes]) -> list[str]:
        """Sends of one connection are handled in their order, so in a queue a producer's sequence rises."""
        broken = []
        last: dict[tuple[int, bytes], int] = {}
        for (queue_id, offset), body in sorted(read.items()):
            _, producer, sequence, _ = body.split(b"/", 3)
            if last.get((queue_id, producer), -1) >= int(sequence):
                broken.append(f"out of order at queue {queue_id} offset {offset}: {key_of(body)}")
            last[queue_id, producer] = int(sequence)
        return broken


class Producer(threading.Thread):
    """Sends bursts over one connection, each as one write, and waits for the answers; reconnects after a loss."""

    def __init__(
        self, history: History, address: str, number: int, *, burst_max: int = 32, body_size_max: int = 1024
    ) -> None:
        super().__init__(name=f"producer-{number}", daemon=True)
        self._history = history
        self._address = address
        self._number = number
        self._burst_max = burst_max
        self._body_size_max = body_size_max
        self._random = random.Random(f"{history.run}/{number}")
        self._sequence = 0
        self._halt = threading.Event()
        self.failure: BaseException | None = None

    def halt(self) -> None:
        """End after the burst that is under way."""
        self._halt.set()

    def run(self) -> None:
        try:
            while not self._halt.is_set():
                try:
                    with Talker(self._address, REPLY_TIMEOUT_S) as talker:
                        self._greet(talker)
                        while not self._halt.wait(self._random.uniform(0, BURST_PAUSE_MAX_S)):
                            self._burst(talker)
                except OSError:
                    self._halt.wait(PAUSE_S)
        except BaseException as error:
            self.failure = error

    def _greet(self, talker: Talker) -> None:
        """Do what has to be done first on a new connection."""

    def _burst(self, talker: Talker) -> None:
        requests = [self._next_request() for _ in range(self._random.randint(1, self._burst_max))]
        self._history.note_sent([body for _, bodies in requests for body in bodies])
        waiting: dict[int, list[bytes]] = {}
        try:
            talker.send([command for command, _ in requests])
            waiting = {command.opaque: bodies for command, bodies in requests}
            while waiting:
                self._hear(talker, waiting)
        except OSError:
            self._history.note_unanswered(len(waiting) or len(requests))
            raise

    def _next_request(self) -> tuple[RemotingCommand, list[bytes]]:
        """A send of one message, or sometimes of a batch, in either kind of header; and the bodies in it."""
        count = self._random.randint(2, BATCH_MAX) if self._random.random() < BATCH_SHARE else 1
        numbers = range(self._sequence, self._sequence + count)
        self._sequence += count
        bodies = [make_body(self._history.run, self._number, number, self._body_size_max) for number in numbers]
        queue_id = self._random.randrange(self._history.queues)
        serialize_type = self._random.choice((SerializeType.JSON, SerializeType.ROCKETMQ))
        if count > 1:
            return batch_request(self._history.topic, queue_id, bodies, [key_of(body) for body in bodies],
                                 serialize_type), bodies  # fmt: skip
        (body,) = bodies
        command = send_request(self._history.topic, queue_id, body, keys=key_of(body), serialize_type=serialize_type)
        return command, bodies

    def _hear(self, talker: Talker, waiting: dict[int, list[bytes]]) -> None:
        """Read one frame."""
        self._take(talker.receive(), waiting)

    def _take(self, response: RemotingCommand, waiting: dict[int, list[bytes]]) -> None:
        bodies = waiting.pop(response.opaque, None)
        if bodies is None:
            raise ProtocolError(f"an answer to nothing that was asked: {response}")
        if response.code != ResponseCode.SUCCESS:
            self._history.note_refused(response.code)
            # A producer that is refused does not ask again at once.
            self._halt.wait(PAUSE_S if not waiting else 0)
            return
        assert response.ext_fields is not None
        queue_id, first = int(response.ext_fields["queueId"]), int(response.ext_fields["queueOffset"])
        for number, body in enumerate(bodies):
            self._history.note_acked(queue_id, first + number, body)


class Answerer(Producer):
    """Sends answers of request-reply to itself: who asked is the same connection, which takes what is pushed."""

    def _greet(self, talker: Talker) -> None:
        talker.call(asker_heart_beat(self._asker))

    @property
    def _asker(self) -> str:
        return f"asker-{self._number}"

    def _next_request(self) -> tuple[RemotingCommand, list[bytes]]:
        body = make_body(self._history.run, self._number, self._sequence, self._body_size_max)
        self._sequence += 1
        queue_id = self._random.randrange(self._history.queues)
        return answer_request(self._history.topic, queue_id, body, self._asker), [body]

    def _hear(self, talker: Talker, waiting: dict[int, list[bytes]]) -> None:
        frame = talker.receive()
        if frame.is_response:
            self._take(frame, waiting)
        elif frame.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            if frame.body not in self._history.sent:
                self._history.note_broken(f"pushed an answer that nobody gave: {frame.body[:60]!r}")
            talker.socket.sendall(frame.reply().encode())


class Follower(threading.Thread):
    """A consumer that reads along while things break, so that what was seen can be held against what is there later."""

    def __init__(self, history: History, address: str) -> None:
        super().__init__(name="follower", daemon=True)
        self._history = history
        self._address = address
        self._halt = threading.Event()
        # Behind what is sure to be there. All of it is read again when the load is over.
        self._offsets = [history.acked_end(queue_id) for queue_id in range(history.queues)]
        self._begun: set[int] = set()
        self.pulls = 0
        """How many have been sent, or are just about to be."""
        self.failure: BaseException | None = None

    def halt(self) -> None:
        self._halt.set()

    def run(self) -> None:
        try:
            while not self._halt.is_set():
                try:
                    with Talker(self._address) as talker:
                        while not self._halt.is_set():
                            self._round(talker)
                except OSError:
                    self._halt.wait(PAUSE_S)
        except BaseException as error:
            self.failure = error

    def _round(self, talker: Talker) -> None:
        history = self._history
        commands = [
            pull_request(history.topic, queue_id, offset, suspend_ms=FOLLOW_SUSPEND_MS, group="fault_followers")
            for queue_id, offset in enumerate(self._offsets)
        ]
        self.pulls += len(commands)
        talker.send(commands)
        asked = {command.opaque: queue_id for queue_id, command in enumerate(commands)}
        while asked:
            response = talker.receive()
            self._take(response, asked.pop(response.opaque))

    def _take(self, response: RemotingCommand, queue_id: int) -> None:
        """Read on where the broker says, as clients do; it may not say that a message is to be left out."""
        messages = pulled(response)
        for message in messages:
            self._history.note_read(message)
        if response.code not in READABLE_CODES:
            # No such topic yet, or no worker to ask.
            self._halt.wait(PAUSE_S)
            return
        assert response.ext_fields is not None
        following = int(response.ext_fields["nextBeginOffset"])
        # What was acknowledged a moment ago need not be dispatched: it begins at the end of what is.
        is_early = queue_id not in self._begun and response.code == ResponseCode.PULL_OFFSET_MOVED
        self._begun.add(queue_id)
        if following != self._offsets[queue_id] + len(messages) and not (
            is_early and 0 < following < self._offsets[queue_id]
        ):
            self._history.note_broken(
                f"reader of queue {queue_id} was sent from {self._offsets[queue_id]} to {following} "
                f"with {len(messages)} messages: {response.code} {response.remark}"
            )
        self._offsets[queue_id] = following


class Load:
    """Producers and a follower on one topic, as a context: on leaving all have ended and none has failed."""

    def __init__(
        self,
        history: History,
        address: str,
        *,
        producers: int = 4,
        first: int = 0,
        burst_max: int = 32,
        body_size_max: int = 1024,
        answerers: int = 0,
    ) -> None:
        """*answerers* of the *producers* send answers of request-reply."""
        self.history = history
        self.threads: list[Producer | Follower] = [
            (Answerer if number < answerers else Producer)(
                history, address, first + number, burst_max=burst_max, body_size_max=body_size_max
            )
            for number in range(producers)
        ]
        self.follower = Follower(history, address)
        self.threads.append(self.follower)

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.halt()

    def halt(self) -> None:
        """End every thread; raises what one of them raised."""
        for thread in self.threads:
            thread.halt()
        for thread in self.threads:
            thread.join(2 * REPLY_TIMEOUT_S)
            if thread.is_alive():
                raise AssertionError(f"{thread.name} does not end")
        for thread in self.threads:
            if thread.failure is not None:
                raise thread.failure


def read_all(
    history: History, address: str, deadline_s: float = READ_DEADLINE_S, *, is_durable: bool = True
) -> dict[Place, bytes]:
    """Read every queue from 0 to its end, and if *is_durable* at least as far as messages were acknowledged."""
    read: dict[Place, bytes] = {}
    deadline = time.monotonic() + deadline_s
    with Talker(address) as talker:
        for queue_id in range(history.queues):
            wanted = history.acked_end(queue_id) if is_durable else 0
            for message in _read_queue(talker, history, queue_id, wanted, deadline):
                read[queue_id, message.queue_offset] = message.body
                if is_durable:
                    history.note_read(message)
    return read


def _read_queue(talker: Talker, history: History, queue_id: int, wanted_end: int, deadline: float) -> list[MessageExt]:
    messages: list[MessageExt] = []
    offset = 0
    while True:
        response = talker.call(pull_request(history.topic, queue_id, offset))
        found = pulled(response)
        for message in found:
            if (message.queue_id, message.queue_offset) != (queue_id, offset):
                raise AssertionError(
                    f"asked for queue {queue_id} offset {offset}, got {message.queue_id} {message.queue_offset}"
                )
            offset += 1
        messages += found
        if found or response.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            continue
        if response.code != ResponseCode.PULL_NOT_FOUND:
            raise AssertionError(f"pull of queue {queue_id} from {offset}: code {response.code}, {response.remark}")
        if offset >= wanted_end:
            return messages
        if time.monotonic() >= deadline:
            raise AssertionError(
                f"queue {queue_id} ends at {offset}, but messages up to {wanted_end} were acknowledged"
            )
        time.sleep(PAUSE_S)


def wait_for_acks(history: History, count: int, deadline_s: float) -> None:
    """Wait until *count* more messages are acknowledged than now."""
    wanted = history.acked_count + count
    deadline = time.monotonic() + deadline_s
    while history.acked_count < wanted:
        if time.monotonic() >= deadline:
            raise AssertionError(
                f"{wanted - history.acked_count} of {count} acknowledgements missing after {deadline_s:g} s "
                f"({history.summary()})"
            )
        time.sleep(PAUSE_S)
