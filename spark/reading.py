"""The bytes of a queue range, pulled from its broker: many pulls under way on one connection, in order, with retries.

The range is worked off in *lanes*: consecutive pieces of offsets, each with one pull under way at a time, many lanes at
once. A pull says where the next one begins, which nobody can know before when a broker filters or limits its answers by
size; lanes make that no reason to wait. Answers are handed out in the order of offsets.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from mqcore.codes import PULL_CODES, PullSysFlag, RequestCode, ResponseCode
from mqcore.errors import BrokerError, FrameError, ProtocolError, RemotingError, RemotingTimeoutError
from mqcore.layout import RECORD_HEAD
from mqcore.protocol.command import next_opaque
from mqcore.protocol.heartbeat import SUB_ALL
from mqcore.spark.cluster import Cluster
from mqcore.spark.connection import RequestTemplate
from mqcore.spark.errors import DataLossError, TopicRouteError
from mqcore.spark.ranges import QueueRange
from mqcore.spark.settings import SourceSettings
from mqcore.transport.link import BlockingAnswer, BlockingLink

logger = logging.getLogger(__name__)

LANE_PULLS: Final = 4
"""A lane is as long as so many answers of the broker, as far as is known."""
FILTERED_LANE_SIZE: Final = 4096
"""Offsets of a lane where the broker filters: an answer covers what it has looked through, not what it found."""
FIRST_LANE_SIZE: Final = 32
PUT_OFF_MAX: Final = 10_000
"""How often in a row a broker may answer a lane that it should ask again; then the connection is taken to be bad."""


class NotThereYetError(RemotingError):
    """The broker has less than it had when the query was planned: the queue ends at *end*. One that was just started
    may not have read all of its store yet, so this is tried again before it counts as loss."""

    def __init__(self, what: str, end: int) -> None:
        super().__init__(what, end)

    @property
    def end(self) -> int:
        return int(self.args[1])

    def __str__(self) -> str:
        return f"{self.args[0]}: the queue ends at {self.end}"


@dataclass(slots=True)
class _Lane:
    """Offsets from *next* (what the next pull asks for) to *end*, and the answers that have come."""

    next: int
    end: int
    bodies: list[bytes] = field(default_factory=list)
    is_pulled: bool = False
    put_off: int = 0  # answers in a row that say: ask again

    @property
    def is_done(self) -> bool:
        return self.next >= self.end


class RangeReading:
    """One pass over a range. ``bodies`` gives the records, in order, each once, whatever happens to connections.

    ``has_lost`` says whether something of the range was not there, and the query does not mind. With *may_miss* that is
    no loss to anybody: nothing is said about it.
    """

    def __init__(self, cluster: Cluster, settings: SourceSettings, part: QueueRange, *, may_miss: bool = False) -> None:
        self._cluster = cluster
        self._settings = settings
        self._part = part
        self._at = part.start  # everything before was handed out
        self._end = part.end
        self.has_lost = False
        self._may_miss = may_miss
        self._lane_size = FILTERED_LANE_SIZE if settings.is_filtered else FIRST_LANE_SIZE
        self._buffered = 0  # bytes that were read and not handed out
        self._under_way = 0  # pulls without an answer
        self._answer_size = 0  # bytes of the last answer with messages
        self._template = RequestTemplate(
            RequestCode.PULL_MESSAGE,
            {
                "consumer_group": settings.pull_group,
                "topic": part.topic,
                "queue_id": part.queue_id,
                "sys_flag": int(PullSysFlag.SUBSCRIPTION),
                "commit_offset": 0,
                "suspend_timeout_millis": 0,
                "subscription": settings.sql_expression or settings.sub_expression or SUB_ALL,
                "sub_version": 0,
                "expression_type": "SQL92" if settings.sql_expression else "TAG",
                "bname": part.broker_name,
            },
            ("queue_offset", "max_msg_nums"),
            cluster.sign,
        )

    def bodies(self) -> Iterator[bytes]:
        """Iterate over pull bodies: whole records with offsets in the range, ascending.

        Raises DataLossError when messages of the range are gone and the query minds, BrokerError for a refusal that
        does not pass, and RemotingError or TopicRouteError when the broker stays away longer than the retries last.
        """
        retries = self._cluster.retries()
        while self._at < self._end:
            before = self._at
            try:
                address = self._cluster.address(self._part.topic, self._part.broker_name)
                with self._cluster.link(address) as link:
                    yield from self._through(link)
            except (RemotingError, FrameError, BrokerError, TopicRouteError) as error:
                if self._at > before:
                    retries.ok()
                self._cluster.forget_routes()
                try:
                    retries.failed(error, f"reading {self._part}")
                except NotThereYetError as lasting:
                    self._lose(str(lasting))
                    self._end = min(self._end, lasting.end)

    def _through(self, link: BlockingLink) -> Iterator[bytes]:
        """Read on over *link* from where reading stands, until the end of the range."""
        lanes: deque[_Lane] = deque()
        by_opaque: dict[int, _Lane] = {}
        planned = self._at
        self._buffered = self._under_way = 0
        while self._at < self._end:
            while planned < self._end and len(lanes) < self._settings.pulls_in_flight and (not lanes or self._has_room):
                lane = _Lane(planned, min(planned + self._lane_size, self._end))
                planned = lane.end
                lanes.append(lane)
                self._pull(link, lane, by_opaque)
            self._wake(link, lanes, by_opaque)
            self._take(link, by_opaque)
            while lanes and (lanes[0].bodies or lanes[0].is_done):
                lane = lanes[0]
                for body in lane.bodies:
                    self._buffered -= len(body)
                    yield body
                lane.bodies.clear()
                self._at = min(lane.next, lane.end)
                if not lane.is_done:
                    break
                lanes.popleft()

    def _wake(self, link: BlockingLink, lanes: deque[_Lane], by_opaque: dict[int, _Lane]) -> None:
        """Let lanes go on that were stopped because too much is held; the first one always may."""
        if self._under_way == len(lanes):
            return
        for lane in lanes:
            if not lane.is_pulled and not lane.is_done and (lane is lanes[0] or self._has_room):
                self._pull(link, lane, by_opaque)

    @property
    def _has_room(self) -> bool:
        """Whether what is held and what is about to come leave room for one more answer."""
        return self._buffered + self._under_way * self._answer_size < self._settings.fetch_max_bytes

    def _pull(self, link: BlockingLink, lane: _Lane, by_opaque: dict[int, _Lane]) -> None:
        opaque = next_opaque()
        by_opaque[opaque] = lane
        lane.is_pulled = True
        self._under_way += 1
        count = self._settings.pull_batch_size
        if not self._settings.is_filtered:
            count = min(count, lane.end - lane.next)
        link.send(self._template.frame(opaque, queue_offset=lane.next, max_msg_nums=count), 1)

    def _take(self, link: BlockingLink, by_opaque: dict[int, _Lane]) -> None:
        """Wait for one answer, give it to its lane, and let the lane go on."""
        answer = link.receive()
        lane = by_opaque.pop(answer.opaque, None)
        if lane is None:
            return
        if answer.code not in PULL_CODES:
            raise BrokerError(answer.code, f"{answer.remark} (reading {self._part})", link.address)
        lane.is_pulled = False
        self._under_way -= 1
        asked, next_offset = lane.next, int(answer.fields["nextBeginOffset"])
        if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and next_offset == asked:
            self._put_off(lane, link)
            return
        lane.put_off = 0
        if answer.code == ResponseCode.SUCCESS:
            self._found(lane, next_offset, answer.body)
        else:
            self._not_found(lane, next_offset, answer)
        if lane.next <= asked:
            raise ProtocolError(f"{link.address} answers a pull at {asked} with next offset {next_offset}")
        if not lane.is_done and self._has_room:
            self._pull(link, lane, by_opaque)

    @staticmethod
    def _put_off(lane: _Lane, link: BlockingLink) -> None:
        """Take notice that the broker gives nothing now: too much waits on this connection, or it starts anew in part.
        The lane asks again when other answers have been read; the first one does so at once."""
        lane.put_off += 1
        if lane.put_off > PUT_OFF_MAX:
            raise RemotingTimeoutError(f"{link.address} says again and again that offset {lane.next} comes later")

    def _found(self, lane: _Lane, next_offset: int, body: bytes) -> None:
        if not self._settings.is_filtered:
            self._lane_size = max(FIRST_LANE_SIZE, LANE_PULLS * (next_offset - lane.next))
        if next_offset > lane.end:
            body = cut_before(body, lane.end)
        lane.next = next_offset
        if body:
            lane.bodies.append(body)
            self._buffered += len(body)
            self._answer_size = len(body)

    def _not_found(self, lane: _Lane, next_offset: int, answer: BlockingAnswer) -> None:
        """Move the lane past what has no message to be read, or say that messages are gone."""
        high = int(answer.fields["maxOffset"])
        low = int(answer.fields["minOffset"])
        if high < self._end:
            raise NotThereYetError(str(self._part), high)
        if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and self._settings.is_filtered:
            lane.next = next_offset
            return
        self._lose(f"{self._part}: nothing at offset {lane.next}, the queue holds [{low}, {high})")
        lane.next = max(next_offset, low, lane.next + 1)

    def _lose(self, what: str) -> None:
        if self._settings.fail_on_data_loss and not self._may_miss:
            raise DataLossError(what)
        if not self.has_lost and not self._may_miss:
            logger.warning("data loss, going on with what is there: %s", what)
        self.has_lost = True


def cut_before(body: bytes, end: int) -> bytes:
    """Return the records of *body* that lie before the queue offset *end*.

    Raises ProtocolError at a record size that does not fit.
    """
    at = 0
    while len(body) - at >= RECORD_HEAD.size:
        head = RECORD_HEAD.struct.unpack_from(body, at)
        size, queue_offset = head[0], head[5]
        if queue_offset >= end:
            break
        if not RECORD_HEAD.size <= size <= len(body) - at:
            raise ProtocolError(f"bad record size in a pull: got {size}, {len(body) - at} bytes left")
        at += size
    return body[:at]
