"""What brokers and name servers know: queues of topics, addresses, offsets. Blocking, with retries.

A broker that is restarted is away for a while, its address may change, and it may refuse for a moment. So a call that
failed for such a reason is made again, with the route asked for anew, as often as ``numRetries`` allows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from mqcore.codes import PermName, PullSysFlag, RequestCode, ResponseCode
from mqcore.errors import BrokerError, FrameError, RemotingConnectError, RemotingError
from mqcore.protocol.bodies import CheckClientRequestBody, SubscriptionData, TopicList, TopicRouteData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.heartbeat import SUB_ALL
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.message_decoder import decode_message
from mqcore.protocol.names import TOOLS_CONSUMER_GROUP
from mqcore.spark.connection import borrow, request
from mqcore.spark.errors import NoQueueError, TopicRouteError
from mqcore.spark.settings import Calling
from mqcore.transport.address_page import addresses_of
from mqcore.transport.link import BlockingAnswer, BlockingLink

logger = logging.getLogger(__name__)

T = TypeVar("T")

PIPELINE_MAX: Final = 128
"""Requests of ``each`` that are under way on one connection."""

CLIENT_ID: Final = "spark"

SAMPLE_SIZE: Final = 32
"""Messages of one pull, which is what most brokers allow."""

TRANSIENT_CODES: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Refusals of a broker that is busy, starting or stopping."""


def is_transient(error: Exception) -> bool:
    """Whether the same call may succeed a little later."""
    if isinstance(error, BrokerError):
        return error.code in TRANSIENT_CODES
    return isinstance(error, RemotingError | FrameError | TopicRouteError | NoQueueError)


class Retries:
    """Counts failures in a row, and pauses between them; *ok* forgets them."""

    def __init__(self, calling: Calling) -> None:
        self._calling = calling
        self._failures = 0

    def ok(self) -> None:
        self._failures = 0

    def failed(self, error: Exception, doing: str, *, may_pass: bool = False) -> None:
        """Pause; raise *error* when it is not transient (nor is said to be by *may_pass*) or was the last allowed."""
        self._failures += 1
        if not (may_pass or is_transient(error)) or self._failures > self._calling.retries:
            raise error
        if self._failures == 1:
            logger.warning("%s failed, trying again: %s", doing, error)
        time.sleep(self._calling.retry_interval_ms / 1000)


class Cluster:
    """The brokers behind some name servers. Routes are kept until a call fails."""

    def __init__(self, calling: Calling) -> None:
        self._calling = calling
        self._timeout_s = calling.timeout_ms / 1000
        self.sign = calling.signer()
        self._routes: dict[str, TopicRouteData | None] = {}
        self._name_servers: tuple[str, ...] = ()
        self._chosen = 0

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def link(self, address: str) -> AbstractContextManager[BlockingLink]:
        """Give a link to *address* for a while; see ``borrow``."""
        return borrow(address, self._timeout_s, self._calling.tls)

    def retries(self) -> Retries:
        return Retries(self._calling)

    def request(self, code: RequestCode, values: Mapping[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
        """Return a request, signed if the options have keys."""
        command = request(code, values, body)
        if self.sign is not None:
            self.sign(command)
        return command

    def forget_routes(self) -> None:
        """Ask again for every route: something has changed."""
        self._routes.clear()
        self._name_servers = ()  # a page may name others now

    def _retrying(self, doing: str, work: Callable[[], T]) -> T:
        retries = self.retries()
        while True:
            try:
                return work()
            except (RemotingError, FrameError, BrokerError, TopicRouteError) as error:
                self.forget_routes()
                retries.failed(error, doing)

    # Name servers.

    def _ask_name_server(self, code: RequestCode, values: Mapping[str, Any] | None) -> BlockingAnswer:
        """Ask the chosen name server, or the next one if it cannot be reached; BrokerError is its refusal."""
        last: RemotingError | None = None
        if not self._name_servers:
            self._name_servers = addresses_of(self._calling.name_servers)
        for _ in self._name_servers:
            address = self._name_servers[self._chosen % len(self._name_servers)]
            try:
                with self.link(address) as link:
                    answer = link.call(self.request(code, values))
            except RemotingError as error:
                last = error
                self._chosen += 1
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, address)
            return answer
        names = ", ".join(self._name_servers)
        raise RemotingConnectError(f"no name server of {names} can be reached: {last}") from last

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        answer = self._retrying(
            "listing topics",
            lambda: self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
        )
        return sorted(TopicList.decode(answer.body).topic_list)

    def own_topics(self) -> set[str]:
        """Return the topics that are named like a cluster or a broker, which brokers make for themselves."""
        answer = self._retrying(
            "listing the cluster's own topics",
            lambda: self._ask_name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, None),
        )
        return set(TopicList.decode(answer.body).topic_list)

    def find_route(self, topic: str) -> TopicRouteData | None:
        """Return the route of *topic*, None when no name server has one. Tries once."""
        if topic not in self._routes:
            try:
                answer = self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            except BrokerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                return None
            self._routes[topic] = TopicRouteData.decode(answer.body)
        return self._routes[topic]

    def has_route(self, topic: str) -> bool:
        """Whether a name server knows *topic* now."""
        return self.find_route(topic) is not None

    def route(self, topic: str) -> TopicRouteData:
        """Return the route of *topic*; TopicRouteError when there is none. Tries once."""
        route = self.find_route(topic)
        if route is None:
            raise TopicRouteError(topic)
        return route

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of *topic*, sorted.

        Raises TopicRouteError when it has none even after the retries: the broker of a topic may be just restarting.
        """
        return self._retrying(f"finding topic {topic}", lambda: readable_queues(topic, self.route(topic)))

    def write_counts(self, topic: str) -> list[tuple[str, int]]:
        """Return (broker name, count of write queues) of *topic*, sorted. Tries once; TopicRouteError when none."""
        route = self.route(topic)
        masters = {broker.broker_name for broker in route.broker_datas if broker.master_address()}
        counts = [
            (data.broker_name, data.write_queue_nums)
            for data in route.queue_datas
            if PermName.is_writeable(data.perm) and data.broker_name in masters and data.write_queue_nums > 0
        ]
        if not counts:
            raise TopicRouteError(topic)
        return sorted(counts)

    def address(self, topic: str, broker_name: str) -> str:
        """Return the address of a broker: its master's, else a slave's. Tries once; TopicRouteError without one."""
        for broker in self.route(topic).broker_datas:
            if broker.broker_name == broker_name and broker.broker_addrs:
                return broker.broker_addrs[min(broker.broker_addrs)]
        raise TopicRouteError(topic)

    # Brokers.

    def each(
        self,
        code: RequestCode,
        queues: Sequence[MessageQueue],
        values: Callable[[MessageQueue], Mapping[str, Any]],
        accepted: Iterable[int] = (ResponseCode.SUCCESS,),
    ) -> dict[MessageQueue, BlockingAnswer]:
        """Ask each queue's broker the same, many requests under way at once; BrokerError names a refusal."""
        answers: dict[MessageQueue, BlockingAnswer] = {}

        def ask_missing() -> dict[MessageQueue, BlockingAnswer]:
            by_address: dict[str, list[MessageQueue]] = {}
            for queue in queues:
                if queue not in answers:
                    by_address.setdefault(self.address(queue.topic, queue.broker_name), []).append(queue)
            for address, asked in by_address.items():
                with self.link(address) as link:
                    for first in range(0, len(asked), PIPELINE_MAX):
                        answers.update(self._ask(link, code, asked[first : first + PIPELINE_MAX], values, accepted))
            return answers

        return self._retrying(f"asking brokers ({code.name})", ask_missing)

    def _ask(
        self,
        link: BlockingLink,
        code: RequestCode,
        queues: Sequence[MessageQueue],
        values: Callable[[MessageQueue], Mapping[str, Any]],
        accepted: Iterable[int],
    ) -> dict[MessageQueue, BlockingAnswer]:
        commands = [self.request(code, {**_queue_values(queue), **values(queue)}) for queue in queues]
        link.send(b"".join(command.encode() for command in commands), len(commands))
        by_opaque = dict(zip((command.opaque for command in commands), queues, strict=True))
        answers = {}
        while by_opaque:
            answer = link.receive()
            queue = by_opaque.pop(answer.opaque, None)
            if queue is None:
                continue
            if answer.code not in accepted:
                raise BrokerError(answer.code, f"{answer.remark} ({queue})", link.address)
            answers[queue] = answer
        return answers

    def check_expression(self, expression: str, queues: Iterable[MessageQueue], group: str) -> None:
        """Ask the brokers of *queues* whether they can evaluate an SQL92 expression; else BrokerError has their words.

        Apache's broker lets every message through for an expression that it cannot parse, and says nothing.
        """

        def ask_brokers() -> None:
            for queue in {queue.broker_name: queue for queue in queues}.values():
                filtered = SubscriptionData(topic=queue.topic, sub_string=expression, expression_type="SQL92")
                body = CheckClientRequestBody(CLIENT_ID, group, filtered).encode()
                address = self.address(queue.topic, queue.broker_name)
                with self.link(address) as link:
                    answer = link.call(self.request(RequestCode.CHECK_CLIENT_CONFIG, None, body))
                if answer.code not in (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
                    raise BrokerError(answer.code, f"{answer.remark} (sqlExpression {expression!r})", address)

        self._retrying("asking brokers about sqlExpression", ask_brokers)

    def min_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset of the first message that each queue still has."""
        return _offsets(self.each(RequestCode.GET_MIN_OFFSET, queues, _nothing))

    def max_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset that each queue's next message will have."""
        return _offsets(self.each(RequestCode.GET_MAX_OFFSET, queues, _nothing))

    def committed_offsets(self, group: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return what *group* has committed; queues without an offset are missing."""
        accepted = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answers = self.each(
            RequestCode.QUERY_CONSUMER_OFFSET, queues, lambda queue: {"consumer_group": group}, accepted
        )
        return _offsets({queue: answer for queue, answer in answers.items() if answer.code == ResponseCode.SUCCESS})

    def commit_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets of *group*."""
        self.each(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            list(offsets),
            lambda queue: {"consumer_group": group, "commit_offset": offsets[queue]},
        )

    def offsets_at(self, timestamps_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the offset of each queue's first message stored at its timestamp or later; the max offset if none.

        Brokers answer this question with the message *nearest* in time, older or newer, so theirs is where the search
        begins and not where it ends.
        """
        queues = list(timestamps_ms)
        lows, highs = self.min_offsets(queues), self.max_offsets(queues)
        guesses = _offsets(
            self.each(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queues, lambda queue: {"timestamp": timestamps_ms[queue]})
        )
        return {
            queue: self._first_at(queue, timestamps_ms[queue], lows[queue], highs[queue], guesses[queue])
            for queue in queues
        }

    def _first_at(self, queue: MessageQueue, timestamp_ms: int, low: int, high: int, guess: int) -> int:
        """Return the first offset in [low, high) that was stored at *timestamp_ms* or later, *high* if none was."""

        def is_late(offset: int) -> bool:
            return self.store_timestamp(queue, offset) >= timestamp_ms

        guess = min(max(guess, low), high)
        if guess < high and not is_late(guess):
            low = guess + 1
        elif guess > low:
            if not is_late(guess - 1):
                return guess
            high = guess - 1
        else:
            return guess
        while low < high:
            middle = (low + high) // 2
            if is_late(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def store_timestamp(self, queue: MessageQueue, offset: int) -> int:
        """Return when the message at *offset* was stored, ms since 1970."""
        return decode_message(self.pull_some(queue, offset, count=1), decompress_body=False).store_timestamp

    def pull_some(self, queue: MessageQueue, offset: int, count: int = SAMPLE_SIZE) -> bytes:
        """Return the records that one pull at *offset* gives, *count* at most."""
        values = {
            "consumer_group": TOOLS_CONSUMER_GROUP,
            "queue_offset": offset,
            "max_msg_nums": count,
            "sys_flag": int(PullSysFlag.SUBSCRIPTION),
            "commit_offset": 0,
            "suspend_timeout_millis": 0,
            "subscription": SUB_ALL,
            "sub_version": 0,
            "expression_type": "TAG",
        }
        return self.each(RequestCode.PULL_MESSAGE, [queue], lambda queue: values)[queue].body


def readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues of *topic* that may be read, sorted; a slave is enough."""
    return sorted(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if PermName.is_readable(data.perm)
        for queue_id in range(data.read_queue_nums)
    )


def _nothing(queue: MessageQueue) -> dict[str, Any]:
    return {}


def _offsets(answers: Mapping[MessageQueue, BlockingAnswer]) -> dict[MessageQueue, int]:
    return {queue: int(answer.fields["offset"]) for queue, answer in answers.items()}


def _queue_values(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "queue_id": queue.queue_id, "bname": queue.broker_name}
