"""What all producers and consumers of one client share: connections, routes, heart-beats, and the requests of brokers.

Source: RocketMQ MQClientInstance.java, ClientRemotingProcessor.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from mqcore import extensions
from mqcore.cause_log import CauseLog
from mqcore.client.errors import BrokerNotFoundError, ClientClosedError, ClientStateError
from mqcore.client.model.counters import ClientCounts, ConsumerCounts, CountsCallback, ProducerCounts
from mqcore.client.model.namespace import Namespace
from mqcore.client.model.unique_ids import UniqueIdGenerator
from mqcore.client.session import forks
from mqcore.client.session.broker_api import BrokerApi, request
from mqcore.client.session.identity import client_id
from mqcore.client.session.inbox import Inbox
from mqcore.client.session.inside import in_background, is_inside_any
from mqcore.client.session.master_search import MasterSearch
from mqcore.client.session.name_servers import NameServers
from mqcore.client.session.routes import RouteTable
from mqcore.client.session.tasks import Periodic
from mqcore.client.session.tls import context_of
from mqcore.client.session.waiting_sends import WaitingSends
from mqcore.client.settings.classes import ClientSettings
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import BrokerError, MQError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.heartbeat import ConsumerData, HeartbeatData, ProducerData
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import CLIENT_INNER_PRODUCER_GROUP
from mqcore.protocol.route import TopicRouteData
from mqcore.transport.address_page import EVERY_S, FIRST_AGAIN_S
from mqcore.transport.client import RemotingClient
from mqcore.transport.signing import Signer

logger = logging.getLogger(__name__)
log = CauseLog(logger)

HEARTBEAT = "heartbeat"

Shared = TypeVar("Shared")


class Control(Protocol):
    """What answers brokers' requests about one consumer."""

    async def reset_offset(self, command: RemotingCommand) -> None: ...

    async def status(self, command: RemotingCommand) -> RemotingCommand: ...

    async def running_info(self, command: RemotingCommand) -> RemotingCommand: ...

    async def consume_directly(self, command: RemotingCommand) -> RemotingCommand: ...


class GroupMember(Protocol):
    """A producer or a consumer, as far as the instance knows it."""

    @property
    def group(self) -> str: ...

    async def close(self) -> None: ...

    def after_fork(self, parent_pid: int) -> None: ...


class ProducerMember(GroupMember, Protocol):
    """A producer, as far as the instance knows it."""

    @property
    def counts(self) -> ProducerCounts: ...


class ConsumerMember(GroupMember, Protocol):
    """A consumer, as far as the instance knows it."""

    @property
    def counts(self) -> ConsumerCounts: ...

    @property
    def control(self) -> Control: ...

    def heartbeat_data(self) -> ConsumerData: ...

    def topics(self) -> Iterable[str]: ...

    def rebalance_soon(self) -> None: ...

    async def persist_offsets(self) -> None: ...


class Session:
    """One client id. It opens nothing before ``start``, which must run in the event loop that uses it from then on.

    It knows nobody who stands on it: producers and consumers are members, requests of brokers are taken by whoever has
    registered in the ``inbox``, and what some of them share is kept by ``shared``.
    """

    def __init__(self, name_servers: Sequence[str], settings: ClientSettings) -> None:
        self.settings = settings
        self.client_id = client_id(settings)
        self.namespace = Namespace(settings.namespace)
        self.unique_ids = UniqueIdGenerator(self.client_id.partition("@")[0].strip("[]"))
        self.broker_versions: dict[str, int] = {}
        self._broker_remarks: dict[str, str | None] = {}
        self.remoting = RemotingClient(tls=context_of(settings))
        self.signer: Signer | None = None
        if settings.access_key is not None and settings.secret_key is not None:
            self.signer = Signer(settings.access_key, settings.secret_key, settings.security_token)
            self.remoting.request_hooks.append(self.signer)
        self.name_servers = NameServers(self.remoting, name_servers, settings.unit_name)
        self.routes = RouteTable(self._ask_route)
        self.masters = MasterSearch(self.routes, self._on_new_master)
        self.waiting_sends = WaitingSends(self._on_silent, self.masters.trust_at)
        self.api = self._make_api()
        self.inbox = Inbox(self.remoting)
        self._shared: dict[Callable[[Session], Any], Any] = {}
        self._producers: dict[str, ProducerMember] = {}
        self._consumers: dict[str, ConsumerMember] = {}
        self._heartbeat_lock = asyncio.Lock()
        self._background: list[Periodic] = []
        self._closed = False
        self._close_lock = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        forks.watch(self)

    # Life cycle.

    async def start(self) -> None:
        """Begin the background work; without effect when it has begun. Raises ClientClosedError after ``close``."""
        if self._closed:
            raise ClientClosedError("the client is closed")
        if self._background:
            return
        extensions.say_if_missing()
        every = self.settings
        self._background = [
            Periodic("route refresh", self._refresh_routes, first_s=every.route_refresh_interval_s,
                     every_s=every.route_refresh_interval_s),
            Periodic(HEARTBEAT, self._heartbeat_round, first_s=every.heartbeat_interval_s,
                     every_s=every.heartbeat_interval_s),
            Periodic("offset commit", self._persist_offsets, first_s=every.offset_commit_interval_s,
                     every_s=every.offset_commit_interval_s),
        ]  # fmt: skip
        if self.name_servers.has_page:
            page = Periodic("name servers by page", self.name_servers.read_page, first_s=FIRST_AGAIN_S, every_s=EVERY_S)
            self._background.append(page)
        self.masters.start()
        self.waiting_sends.start()
        for work in self._background:
            work.start()

    async def close(self) -> None:
        """Close what is still open, consumers first, then producers, then the connections.

        All consumers close at the same time, and all producers, so that it takes no longer than the slowest of each.
        What one of them raises comes when all else is closed. A handler of one of the consumers does not wait for it.
        """
        if is_inside_any(self):
            self._closing = in_background(self._close(), "closing the client")
        else:
            await self._close()

    async def _close(self) -> None:
        async with self._close_lock:
            if not self._closed:
                await self._close_all()

    async def _close_all(self) -> None:
        outcomes: list[BaseException | None] = []
        for members in (self._consumers, self._producers):
            closing = (member.close() for member in list(members.values()))
            outcomes += await asyncio.gather(*closing, return_exceptions=True)
        self._closed = True
        for work in self._background:
            await work.stop()
        self.waiting_sends.close()
        await self.masters.close()
        await self.remoting.close()
        for failure in filter(None, outcomes):
            raise failure

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child: be a client of its own if it has not been started, else leave all to the parent."""
        if not self._background:
            self.client_id = client_id(self.settings)
            self.api = self._make_api()
            return
        for member in [*self._producers.values(), *self._consumers.values()]:
            member.after_fork(parent_pid)
        forks.keep(self.remoting, self.name_servers, self.api, self.masters, self._background)
        self._closed = True
        parents: Any = forks.OfTheParent(parent_pid)
        self.remoting = self.name_servers = self.api = self.masters = parents

    def _make_api(self) -> BrokerApi:
        times = self.settings.call_timeout_s, self.settings.admin_timeout_s
        return BrokerApi(self.remoting, self.client_id, *times, self.namespace, self.masters.doubt, self.waiting_sends)

    def shared(self, make: Callable[[Session], Shared]) -> Shared:
        """Return what *make* makes of this session: the same for everybody who asks, made for the first who does."""
        found: Shared | None = self._shared.get(make)
        if found is None:
            found = self._shared[make] = make(self)
        return found

    # Members.

    @property
    def consumers(self) -> Mapping[str, ConsumerMember]:
        """The open consumers, by group."""
        return self._consumers

    def add_producer(self, producer: ProducerMember) -> None:
        if producer.group in self._producers:
            raise ClientStateError(
                f"The producer group[{producer.group}] has been created before, specify another name please."
            )
        self._producers[producer.group] = producer

    async def remove_producer(self, producer: GroupMember) -> None:
        if self._producers.pop(producer.group, None) is not None:
            await self._unregister(producer_group=producer.group)

    def add_consumer(self, consumer: ConsumerMember) -> None:
        if consumer.group in self._consumers:
            raise ClientStateError(
                f"The consumer group[{consumer.group}] has been created before, specify another name please."
            )
        self._consumers[consumer.group] = consumer

    async def remove_consumer(self, consumer: ConsumerMember) -> None:
        if self._consumers.pop(consumer.group, None) is not None:
            await self._unregister(consumer_group=consumer.group)

    async def _unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        async def tell(address: str) -> None:
            try:
                await self.api.unregister(address, producer_group, consumer_group)
            except MQError as error:
                log.warning("unregister failed", address=address, error=error)

        await asyncio.gather(*(tell(address) for address in dict.fromkeys(self.routes.addresses(with_slaves=True))))

    # Counts.

    def counts(self) -> ClientCounts:
        """Return what the open producers and consumers have counted. From any thread."""
        return ClientCounts(
            {group: producer.counts for group, producer in list(self._producers.items())},
            {group: consumer.counts for group, consumer in list(self._consumers.items())},
        )

    async def report_counts(self, callback: CountsCallback, every_s: float) -> None:
        """Call *callback* with the counts every *every_s* seconds, until the client is closed."""

        async def report() -> None:
            callback(self.counts())

        await self.start()
        reports = Periodic("report of counts", report, first_s=every_s, every_s=every_s)
        self._background.append(reports)
        reports.start()

    # Addresses.

    async def master_address(self, queue: MessageQueue) -> str:
        """Return the address of the master of *queue*; its route is asked for once more when that is unknown."""
        address = self.routes.master_address(queue.broker_name)
        if address is None:
            await self.routes.refresh(queue.topic)
            address = self.routes.master_address(queue.broker_name)
        if address is None:
            raise BrokerNotFoundError(queue.broker_name)
        return address

    async def any_address(self, queue: MessageQueue) -> str:
        """Return the master's address, or a slave's."""
        address = self.routes.any_address(queue.broker_name)
        if address is None:
            await self.routes.refresh(queue.topic)
            address = self.routes.any_address(queue.broker_name)
        if address is None:
            raise BrokerNotFoundError(queue.broker_name)
        return address

    async def pull_address(self, queue: MessageQueue, broker_id: int) -> tuple[str, bool]:
        """Return where to pull *queue* from, if possible the broker with *broker_id*, and whether that is a slave."""
        found = self.routes.subscribe_address(queue.broker_name, broker_id)
        if found is None:
            await self.routes.refresh(queue.topic)
            found = self.routes.subscribe_address(queue.broker_name, broker_id)
        if found is None:
            raise BrokerNotFoundError(queue.broker_name)
        return found

    async def consumer_ids(self, topic: str, group: str) -> list[str] | None:
        """Ask a broker of *topic* for the members of *group*; None when nobody can tell."""
        address = self.routes.random_broker_address(topic)
        if address is None:
            await self.routes.refresh(topic)
            address = self.routes.random_broker_address(topic)
        if address is None:
            return None
        try:
            return await self.api.consumer_ids(address, group)
        except MQError as error:
            log.warning("members unknown", group=group, address=address, error=error)
            self.heartbeat_soon()  # the broker may not have heard of the group yet; it tells the members when it has
            return None

    async def _ask_route(self, topic: str) -> TopicRouteData:
        command = request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": self.namespace.wrap(topic), "accept_standard_json_only": True}
        )
        answer = await self.name_servers.invoke(command, self.settings.call_timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark or "", self.name_servers.chosen)
        return TopicRouteData.decode(answer.body)

    # Background work.

    async def heartbeat(self) -> None:
        """Tell every known broker who is here. Slaves need to know of consumers only. Failures are logged."""
        if not self._producers and not self._consumers:
            return
        async with self._heartbeat_lock:
            heartbeat = HeartbeatData(
                self.client_id,
                [ProducerData(group) for group in (*self._producers, CLIENT_INNER_PRODUCER_GROUP)],
                [consumer.heartbeat_data() for consumer in self._consumers.values()],
            )
            addresses = dict.fromkeys(self.routes.addresses(with_slaves=bool(self._consumers)))
            await asyncio.gather(*(self._heartbeat_one(address, heartbeat) for address in addresses))

    async def make_known(self, queues: Iterable[MessageQueue]) -> None:
        """Send heart-beats if a broker of *queues* has had none: it can then send requests to this client."""
        masters = {self.routes.master_address(queue.broker_name) for queue in queues} - {None}
        if not masters <= self.broker_versions.keys():
            await self.heartbeat()

    def _on_new_master(self, doubted: Iterable[str]) -> None:
        """Greet a new master. What waits for an answer of a broker that is out of the routes waits in vain."""
        for address in doubted:
            if self.routes.name_of(address) is None:
                self._break_off(address)
        self.heartbeat_soon()

    def _on_silent(self, address: str) -> None:
        """Look for the master of a broker name whose broker does not answer; what waits for one that is none fails."""
        name = self.routes.name_of(address)
        if name is None or self.routes.master_address(name) not in (None, address):
            self._break_off(address)
        else:
            self.masters.doubt(address)

    def _break_off(self, address: str) -> None:
        self.waiting_sends.break_off(address)
        connection = self.remoting.connection_of(address)
        if connection is not None:
            connection.abort()

    def heartbeat_soon(self) -> None:
        """Let the next heart-beat come now. Many callers at once make one."""
        for work in self._background:
            if work.name == HEARTBEAT:
                work.wake()

    async def _heartbeat_one(self, address: str, heartbeat: HeartbeatData) -> None:
        try:
            self.broker_versions[address], remark = await self.api.heartbeat(address, heartbeat)
            if remark is not None and remark != self._broker_remarks.get(address):
                log.warning("a broker has something to say", address=address, remark=remark)
            self._broker_remarks[address] = remark
        except MQError as error:
            log.warning("heartbeat failed", address=address, error=error)

    async def _heartbeat_round(self) -> None:
        self.routes.forget_unused_brokers()
        await self.heartbeat()

    async def _refresh_routes(self) -> None:
        subscribed = [topic for consumer in self._consumers.values() for topic in consumer.topics()]
        for topic in dict.fromkeys((*self.routes.topics, *subscribed)):
            try:
                await self.routes.refresh(topic)
            except MQError as error:
                log.warning("route not refreshed", topic=topic, error=error)

    async def _persist_offsets(self) -> None:
        for consumer in list(self._consumers.values()):
            await consumer.persist_offsets()
