"""How one message gets to a broker: the choice of a queue, the attempts, the hooks, the request.

Source: RocketMQ DefaultMQProducerImpl.java, sendDefaultImpl and sendKernelImpl.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mqcore import clock as door_to_time
from mqcore.cause_log import CauseLog
from mqcore.client.errors import NoNameServerError, NoRouteError, SendFailedError, SendForbiddenError
from mqcore.client.model.messages import MessageKind, waits_from
from mqcore.client.model.outgoing import Outgoing
from mqcore.client.model.selectors import Rotation
from mqcore.client.produce.fault_strategy import FaultStrategy
from mqcore.client.session.broker_api import SendResponse
from mqcore.client.session.failures import is_doubtful, is_gone, is_not_stored
from mqcore.client.settings.classes import ProducerSettings
from mqcore.client.telemetry.producer_hooks import Hooks, SendContext
from mqcore.codes import ClientErrorCode, MQVersion, RequestCode, ResponseCode, version_name
from mqcore.errors import (
    ArgumentError,
    BaseMQError,
    BrokerError,
    ClientError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
)
from mqcore.protocol import properties as names
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_retry_topic
from mqcore.protocol.properties import encode_properties

if TYPE_CHECKING:
    from mqcore.client.session.session import Session
    from mqcore.client.session.waiting_sends import WaitingSends

log = CauseLog(logging.getLogger(__name__))

VIP_PORT_DISTANCE = 2

ChooseQueue = Callable[[Sequence[MessageQueue]], MessageQueue]


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message went and what the broker said."""

    queue: MessageQueue
    response: SendResponse


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that was made elsewhere: where to, how it ended, and the time left for others, seconds.

    *begun_s* is of the monotonic clock.
    """

    queue: MessageQueue
    error: BrokerError | RemotingError
    left_s: float
    begun_s: float


class ProducerCore:
    """Sends for *group*. It keeps no message: back-pressure and life cycle are the producer's."""

    def __init__(self, hub: Session, group: str, settings: ProducerSettings) -> None:
        self._hub = hub
        self._settings = settings
        hub.namespace.leave_alone(settings.create_topic_key)
        self.group = group
        self.hooks = Hooks()
        self.faults = FaultStrategy(
            settings.send_latency_fault_enable, settings.latency_max_ms, settings.not_available_duration_ms
        )

    async def publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues to which *topic* can be sent; NoRouteError when there is none."""
        return (await self._rotation_with_master(topic, self._settings.send_timeout_s)).queues

    async def send(
        self, outgoing: Outgoing, timeout_s: float | None = None, after: FailedAttempt | None = None
    ) -> Sent:
        """Send to the queue whose turn it is; after a failure to the next one, if possible on another broker.

        All attempts together take at most *timeout_s*; *after* is one that has been made already. When there is no
        other broker, and this one is gone or not the master any more, its new master is waited for within that time:
        such attempts do not count among the retries. Raises BrokerError for a refusal that no other broker would mend,
        SendFailedError when every attempt failed, RemotingTimeoutError when the time was used up.
        """
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        clock = asyncio.get_running_loop().time
        begin_s = clock()
        brokers: list[str] = []
        gone: dict[str, str | None] = {}
        stored: Sent | None = None
        failure: BrokerError | RemotingError | ClientError | None = None
        spent_s = 0.0
        if after is not None:
            failure = after.error
            spent_s = door_to_time.monotonic_s() - after.begun_s
            brokers.append(after.queue.broker_name)
            if is_doubtful(failure):
                self._hub.masters.doubt(failure.broker)
            if is_gone(failure):
                gone[after.queue.broker_name] = failure.broker
        while len(brokers) <= self._settings.retries or self._is_worth_more(failure):
            left_s = begin_s + timeout_s - clock()
            if left_s <= 0:
                break
            rotation = await self._rotation_with_master(outgoing.topic, left_s)
            queue = self.faults.select(rotation, brokers[-1] if brokers else None)
            name = queue.broker_name
            if name in gone:
                if not await self._hub.masters.wait(name, gone[name], left_s):
                    break
                gone.clear()  # the routes may be others now
                continue
            brokers.append(name)
            address = self._hub.routes.master_address(name)
            try:
                stored = Sent(queue, await self._attempt(outgoing, queue, left_s))
            except SendForbiddenError:
                raise
            except BrokerError as error:
                if error.code not in self._settings.retry_response_codes:
                    if stored is not None:
                        return stored
                    raise
                failure = error
            except (RemotingError, ClientError) as error:
                failure = error
            else:
                if failure is not None:
                    self._hub.masters.trust(name)
                if self._is_good_enough(stored):
                    return stored
                continue
            if is_gone(failure):
                gone[name] = address
            warn_of_attempt(self.group, queue, len(brokers), failure)
        if stored is not None:
            return stored
        cost_s = clock() - begin_s
        cost_ms = int((spent_s + cost_s) * 1000)
        if failure is None or (cost_s >= timeout_s and len(brokers) <= self._settings.retries):
            raise RemotingTimeoutError(
                f"send timed out: {len(brokers)} attempts in {cost_ms} ms, topic {outgoing.topic}"
            ).at(broker=brokers[-1] if brokers else "", topic=outgoing.topic) from failure
        code = client_code(failure)
        raise SendFailedError(outgoing.topic, tuple(brokers), cost_ms, code, str(failure)) from failure

    def _is_worth_more(self, failure: Exception | None) -> bool:
        """Whether a send goes on after its retries, while there is time.

        That is so when nothing was stored, for want of a master. What was cut off may be stored: who wants no retries
        wants it once at most.
        """
        return failure is not None and (is_not_stored(failure) or (self._settings.retries > 0 and is_gone(failure)))

    async def _attempt(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float) -> SendResponse:
        """Send once and tell the fault strategy how it went."""
        if not self.faults.enabled:
            return await self._send_once(outgoing, queue, timeout_s)
        with self._noting(queue):
            return await self._send_once(outgoing, queue, timeout_s)

    @contextmanager
    def _noting(self, queue: MessageQueue) -> Iterator[None]:
        """Tell the fault strategy how long the work inside took, and whether it failed."""
        begin_ms = door_to_time.monotonic_ms()
        failed = False
        try:
            yield
        except (BrokerError, RemotingError, ClientError) as error:
            failed = not isinstance(error, SendForbiddenError)
            raise
        finally:
            latency_ms = door_to_time.monotonic_ms() - begin_ms
            self.faults.update(queue.broker_name, latency_ms, isolate=failed)

    async def send_chosen(self, outgoing: Outgoing, choose: ChooseQueue, timeout_s: float | None = None) -> Sent:
        """Send once, to the queue that *choose* picks from those of the topic. Finding the topic's route costs time."""
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + timeout_s
        queue = chosen_by(choose, (await self._rotation_with_master(outgoing.topic, timeout_s)).queues)
        left_s = deadline_s - clock()
        if left_s <= 0:
            raise RemotingTimeoutError(f"choosing a queue took the whole {timeout_s * 1000:.0f} ms").at(
                topic=outgoing.topic
            )
        return Sent(queue, await self.send_to(outgoing, queue, left_s))

    async def send_to(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float | None = None) -> SendResponse:
        """Send once, to *queue*; again only while it is certain that nothing was stored, for want of a master."""
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + timeout_s
        name, failed = queue.broker_name, False
        while True:
            address = self._hub.routes.master_address(name)
            try:
                response = await self._send_once(outgoing, queue, deadline_s - clock())
            except (BrokerError, RemotingError, ClientError) as error:
                if not is_not_stored(error) or not await self._hub.masters.wait(name, address, deadline_s - clock()):
                    raise
                failed = True
            else:
                if failed:
                    self._hub.masters.trust(name)
                return response

    async def _send_once(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float) -> SendResponse:
        check_queue(outgoing, queue)
        address = await self.address_of(queue)
        if self.hooks.any_of_sends:
            response = await self._send_hooked(outgoing, queue, address, timeout_s)
        else:
            code, values = self._request(outgoing, queue)
            response = await self._hub.api.send(address, code, values, outgoing.body, timeout_s)
        if response.recall_handle is None and is_ignored_timer(outgoing, response):
            log.warning(
                "the broker knows no timers and has delivered at once what was to wait",
                topic=queue.topic, group=self.group, broker=queue.broker_name, version=version_name(response.version),
            )  # fmt: skip
        return response

    async def send_oneway(self, outgoing: Outgoing, choose: ChooseQueue | None = None) -> None:
        """Send once and do not wait for an answer; only a connection that fails is noticed."""
        rotation = await self._rotation(outgoing.topic)
        if choose is None:
            queue = self.faults.select(rotation)
            with self._noting(queue):
                await self._send_oneway_to(outgoing, queue)
        else:
            await self._send_oneway_to(outgoing, chosen_by(choose, rotation.queues))

    async def _send_oneway_to(self, outgoing: Outgoing, queue: MessageQueue) -> None:
        check_queue(outgoing, queue)
        address = await self.address_of(queue)
        if self.hooks.any_of_sends:
            await self._send_oneway_hooked(outgoing, queue, address)
            return
        code, values = self._request(outgoing, queue)
        await self._hub.api.send_oneway(address, code, values, outgoing.body, self._settings.send_timeout_s)

    async def recall(self, topic: str, handle: str, timeout_s: float) -> str:
        """Take a message back that waits for its time, at the broker that its handle names; return its id."""
        queues = await self.publish_queues(topic)
        name = broker_of_handle(handle)
        queue = next((queue for queue in queues if queue.broker_name == name), None)
        if queue is None:
            raise ClientError(f"recall: topic {topic} has no broker {name!r}, which the handle names")
        return await self._hub.api.recall(await self.address_of(queue), self.group, topic, handle, timeout_s)

    def wire_names(self, topic: str) -> tuple[str, str]:
        """Return what brokers call the group and *topic*."""
        return self._hub.namespace.wrap(self.group), self._hub.namespace.wrap(topic)

    @property
    def waiting_sends(self) -> WaitingSends:
        return self._hub.waiting_sends

    def doubt_soon(self, address: str) -> None:
        """Let the new master of the broker at *address* be looked for. For any thread."""
        self._hub.masters.doubt_soon(address)

    async def address_of(self, queue: MessageQueue) -> str:
        """Return where the master of *queue* takes messages; BrokerNotFoundError when it has no master."""
        address = await self._hub.master_address(queue)
        return vip_address(address) if self._settings.vip_channel else address

    async def _send_hooked(
        self, outgoing: Outgoing, queue: MessageQueue, address: str, timeout_s: float
    ) -> SendResponse:
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + timeout_s
        context = self._context(outgoing, queue, address)
        await self.hooks.check_forbidden(context)
        await self.hooks.before_send(context)
        try:
            left_s = deadline_s - clock()
            if left_s <= 0:
                reason = f"the hooks took the whole {timeout_s * 1000:.0f} ms"
                raise RemotingTimeoutError(reason).at(broker=address, topic=outgoing.topic)
            code, values = self._request(outgoing, queue)
            context.response = await self._hub.api.send(address, code, values, outgoing.body, left_s)
            return context.response
        except BaseException as error:
            context.error = error
            raise
        finally:
            await self.hooks.after_send(context)

    async def _send_oneway_hooked(self, outgoing: Outgoing, queue: MessageQueue, address: str) -> None:
        context = self._context(outgoing, queue, address, is_oneway=True)
        await self.hooks.check_forbidden(context)
        await self.hooks.before_send(context)
        try:
            code, values = self._request(outgoing, queue)
            await self._hub.api.send_oneway(address, code, values, outgoing.body, self._settings.send_timeout_s)
        except BaseException as error:
            context.error = error
            raise
        finally:
            await self.hooks.after_send(context)

    def _context(
        self, outgoing: Outgoing, queue: MessageQueue, address: str, *, is_oneway: bool = False
    ) -> SendContext:
        return SendContext(
            group=self.group,
            topic=outgoing.topic,
            queue=queue,
            broker_address=address,
            body=outgoing.body,
            properties=outgoing.properties,
            msg_id=outgoing.msg_id,
            kind=MessageKind.of(outgoing.properties),
            is_batch=outgoing.is_batch,
            is_oneway=is_oneway,
        )

    async def _rotation(self, topic: str) -> Rotation:
        settings = self._settings
        return await self._hub.routes.rotation(topic, settings.create_topic_key, settings.default_topic_queue_nums)

    async def _rotation_with_master(self, topic: str, timeout_s: float) -> Rotation:
        """As ``_rotation``, but wait when the topic's only brokers have no master just now."""
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + timeout_s
        while True:
            try:
                return await self._rotation(topic)
            except NoRouteError:
                name = self._hub.routes.masterless_broker(topic)
                if name is None or not await self._hub.masters.wait(name, None, deadline_s - clock()):
                    raise

    def _is_good_enough(self, sent: Sent) -> bool:
        return sent.response.code == ResponseCode.SUCCESS or not self._settings.retry_another_broker_when_not_store_ok

    def _request(self, outgoing: Outgoing, queue: MessageQueue) -> tuple[RequestCode, dict[str, Any]]:
        group, topic = self.wire_names(outgoing.topic)
        values: dict[str, Any] = {
            "producer_group": group,
            "topic": topic,
            "default_topic": self._settings.create_topic_key,
            "default_topic_queue_nums": self._settings.default_topic_queue_nums,
            "queue_id": queue.queue_id,
            "sys_flag": outgoing.sys_flag,
            "born_timestamp": door_to_time.now_ms(),
            "flag": outgoing.flag,
            "properties": encode_properties(outgoing.properties),
            "reconsume_times": 0,
            "unit_mode": False,
            "batch": outgoing.is_batch,
            "bname": queue.broker_name,
        }
        if is_retry_topic(outgoing.topic):
            values["reconsume_times"] = int(outgoing.properties.get(names.PROPERTY_RECONSUME_TIME, "0"))
            times_max = outgoing.properties.get(names.PROPERTY_MAX_RECONSUME_TIMES)
            values["max_reconsume_times"] = None if times_max is None else int(times_max)
        if outgoing.is_reply:
            return RequestCode.SEND_REPLY_MESSAGE_V2, values
        return (RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2), values


def warn_of_attempt(group: str, queue: MessageQueue, attempt: int, error: Exception) -> None:
    """Log an attempt to send that failed and is followed by another one: now and then, for each broker of a topic."""
    log.warning("send failed", topic=queue.topic, group=group, broker=queue.broker_name, attempt=attempt, error=error)


def is_ignored_timer(outgoing: Outgoing, response: SendResponse) -> bool:
    """Return whether a message that was to wait does not: its broker is of RocketMQ 4, and has given no recall handle.

    RocketMQ 5 has timers, and gives handles since 5.3.2 only; mqcore says that it is a 4.9, and gives them. A half
    message gets none before it is committed.
    """
    if response.version >= MQVersion.V5_0_0 or not waits_from(outgoing.properties, door_to_time.now_ms()):
        return False
    return outgoing.properties.get(names.PROPERTY_TRANSACTION_PREPARED) != "true"


def check_queue(outgoing: Outgoing, queue: MessageQueue) -> None:
    """Raise ArgumentError when *queue* is one of another topic."""
    if queue.topic != outgoing.topic:
        reason = f"message's topic not equal mq's topic: {outgoing.topic!r} and {queue.topic!r}"
        raise ArgumentError(reason).at(topic=outgoing.topic)


def chosen_by(choose: ChooseQueue, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return what *choose* picks; ArgumentError when that is no queue, ClientError for what it raises itself."""
    try:
        queue: MessageQueue | None = choose(queues)
    except BaseMQError:
        raise
    except Exception as error:
        raise ClientError(f"select message queue threw exception. {type(error).__name__}: {error}") from error
    if queue is None:
        raise ArgumentError("select message queue return null.")
    if not isinstance(queue, MessageQueue):
        raise ArgumentError(f"the selector chose {queue!r}, wanted one of the queues")
    return queue


def broker_of_handle(handle: str) -> str:
    """Return the name of the broker that gave *handle*. Raises ArgumentError for what is none."""
    try:
        parts = base64.urlsafe_b64decode(handle.encode()).decode().split(" ")
    except ValueError as error:
        raise ArgumentError(f"no recall handle: {handle!r}") from error
    if len(parts) < 5 or parts[0] != "v1":
        raise ArgumentError(f"no recall handle: {handle!r}")
    return parts[2]


def vip_address(address: str) -> str:
    """Return the address at which a broker takes sends apart from the pulls: two ports below."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - VIP_PORT_DISTANCE}"


def client_code(failure: Exception) -> int:
    """Return the number that RocketMQ's clients give the last failure of a send."""
    if isinstance(failure, BrokerError):
        return failure.code
    if isinstance(failure, RemotingConnectError):
        return ClientErrorCode.CONNECT_BROKER_EXCEPTION
    if isinstance(failure, RemotingTimeoutError):
        return ClientErrorCode.ACCESS_BROKER_TIMEOUT
    if isinstance(failure, NoNameServerError | NoRouteError):
        return failure.client_code
    return ClientErrorCode.BROKER_NOT_EXIST_EXCEPTION
