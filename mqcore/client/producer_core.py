"""How one message gets to a broker: the choice of a queue, the attempts, the request.

Source: RocketMQ DefaultMQProducerImpl.java, sendDefaultImpl and sendKernelImpl.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mqcore.client.broker_api import SendResponse
from mqcore.client.errors import NoNameServerError, NoRouteError, SendFailedError
from mqcore.client.selectors import Rotation
from mqcore.client.settings import ProducerSettings
from mqcore.codes import ClientErrorCode, RequestCode, ResponseCode
from mqcore.errors import BrokerError, ClientError, RemotingConnectError, RemotingError, RemotingTimeoutError
from mqcore.protocol import properties as names
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_retry_topic
from mqcore.protocol.properties import encode_properties

if TYPE_CHECKING:
    from mqcore.client.instance import ClientInstance

logger = logging.getLogger(__name__)

ChooseQueue = Callable[[Sequence[MessageQueue]], MessageQueue]


@dataclass(slots=True)
class Outgoing:
    """A message, or a batch, as it goes over the wire: *body* is compressed or a batch already, as *sys_flag* says."""

    topic: str
    body: bytes
    properties: dict[str, str]
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message went and what the broker said."""

    queue: MessageQueue
    response: SendResponse


class ProducerCore:
    """Sends for *group*. It keeps no message: back-pressure and life cycle are the producer's."""

    def __init__(self, hub: ClientInstance, group: str, settings: ProducerSettings) -> None:
        self._hub = hub
        self._group = group
        self._settings = settings

    async def publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues to which *topic* can be sent; NoRouteError when there is none."""
        return (await self._rotation(topic)).queues

    async def send(self, outgoing: Outgoing, timeout_s: float | None = None) -> Sent:
        """Send to the queue whose turn it is; after a failure to the next one, if possible on another broker.

        All attempts together take at most *timeout_s*. Raises BrokerError for a refusal that no other broker would
        mend, SendFailedError when every attempt failed, RemotingTimeoutError when the time was used up.
        """
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        clock = asyncio.get_running_loop().time
        begin_s = clock()
        rotation = await self._rotation(outgoing.topic)
        brokers: list[str] = []
        stored: Sent | None = None
        failure: BrokerError | RemotingError | ClientError | None = None
        for _ in range(1 + self._settings.retries):
            left_s = begin_s + timeout_s - clock()
            if left_s <= 0:
                break
            queue = rotation.next(avoid_broker=brokers[-1] if brokers else None)
            brokers.append(queue.broker_name)
            try:
                stored = Sent(queue, await self.send_to(outgoing, queue, left_s))
            except BrokerError as error:
                if error.code not in self._settings.retry_response_codes:
                    if stored is not None:
                        return stored
                    raise
                failure = error
            except (RemotingError, ClientError) as error:
                failure = error
            else:
                if self._is_good_enough(stored):
                    return stored
                continue
            logger.warning("send failed topic=%s queue=%s attempt=%d: %s", outgoing.topic, queue, len(brokers), failure)
        if stored is not None:
            return stored
        cost_s = clock() - begin_s
        if failure is None or (cost_s >= timeout_s and len(brokers) <= self._settings.retries):
            raise RemotingTimeoutError(
                f"send timed out: {len(brokers)} attempts in {cost_s * 1000:.0f} ms, topic {outgoing.topic}"
            ) from failure
        code = client_code(failure)
        raise SendFailedError(outgoing.topic, tuple(brokers), int(cost_s * 1000), code, str(failure)) from failure

    async def send_chosen(self, outgoing: Outgoing, choose: ChooseQueue, timeout_s: float | None = None) -> Sent:
        """Send once, to the queue that *choose* picks from those of the topic."""
        queue = choose((await self._rotation(outgoing.topic)).queues)
        return Sent(queue, await self.send_to(outgoing, queue, timeout_s))

    async def send_to(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float | None = None) -> SendResponse:
        """Send once, to *queue*."""
        if queue.topic != outgoing.topic:
            raise ClientError(f"message's topic not equal mq's topic: {outgoing.topic!r} and {queue.topic!r}")
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        address = await self._hub.master_address(queue)
        code, values = self._request(outgoing, queue)
        return await self._hub.api.send(address, code, values, outgoing.body, timeout_s)

    async def send_oneway(self, outgoing: Outgoing, choose: ChooseQueue | None = None) -> None:
        """Send once and do not wait for an answer; only a connection that fails is noticed."""
        rotation = await self._rotation(outgoing.topic)
        queue = rotation.next() if choose is None else choose(rotation.queues)
        address = await self._hub.master_address(queue)
        code, values = self._request(outgoing, queue)
        await self._hub.api.send_oneway(address, code, values, outgoing.body, self._settings.send_timeout_s)

    async def _rotation(self, topic: str) -> Rotation:
        settings = self._settings
        return await self._hub.routes.rotation(topic, settings.create_topic_key, settings.default_topic_queue_nums)

    def _is_good_enough(self, sent: Sent) -> bool:
        return sent.response.code == ResponseCode.SUCCESS or not self._settings.retry_another_broker_when_not_store_ok

    def _request(self, outgoing: Outgoing, queue: MessageQueue) -> tuple[RequestCode, dict[str, Any]]:
        values: dict[str, Any] = {
            "producer_group": self._group,
            "topic": outgoing.topic,
            "default_topic": self._settings.create_topic_key,
            "default_topic_queue_nums": self._settings.default_topic_queue_nums,
            "queue_id": queue.queue_id,
            "sys_flag": outgoing.sys_flag,
            "born_timestamp": time.time_ns() // 1_000_000,
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
        return (RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2), values


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
