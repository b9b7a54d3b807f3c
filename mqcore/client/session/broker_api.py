"""The calls of a client to a broker, one method per request code.

Each method takes the broker's address, sends one request, and turns the answer into a value or a BrokerError. Which
broker to ask, and what to do when it does not answer, is decided by the callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mqcore.client.model.namespace import Namespace
from mqcore.client.session.failures import is_doubtful
from mqcore.client.session.waiting_sends import PendingSend, WaitingSends
from mqcore.codes import (
    CURRENT_VERSION,
    PULL_CODES,
    STORED_CODES,
    LanguageCode,
    PullSysFlag,
    RequestCode,
    ResponseCode,
)
from mqcore.errors import BrokerError, RemotingConnectError, RemotingError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import RESPONSE_HEADERS, encode_request
from mqcore.protocol.heartbeat import (
    CheckClientRequestBody,
    ConsumerList,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionData,
)
from mqcore.protocol.message import MessageExt, MessageQueue
from mqcore.transport.client import RemotingClient
from mqcore.transport.connection import AnswerReader

LOCK_TIMEOUT_S = 1.0
OFFSET_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """One pull. *commit_offset* None commits nothing; *hold_s* 0 lets the broker answer at once.

    *subscription* None relies on what the broker knows from heart-beats; else its expression travels along. *lite*
    marks the pull of a consumer that polls.
    """

    group: str
    queue: MessageQueue
    offset: int
    messages_max: int
    sub_version: int = 0
    expression_type: str = "TAG"
    subscription: str | None = None
    commit_offset: int | None = None
    hold_s: float = 0.0
    lite: bool = False

    @property
    def sys_flag(self) -> int:
        flag = PullSysFlag(0)
        if self.commit_offset is not None:
            flag |= PullSysFlag.COMMIT_OFFSET
        if self.hold_s > 0:
            flag |= PullSysFlag.SUSPEND
        if self.subscription is not None:
            flag |= PullSysFlag.SUBSCRIPTION
        if self.lite:
            flag |= PullSysFlag.LITE_PULL
        return int(flag)


@dataclass(frozen=True, slots=True)
class PullResponse:
    """What a broker answered: *code* is SUCCESS or one of the three PULL codes, *body* the records of SUCCESS."""

    code: ResponseCode
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes


PullTaker = Callable[[PullResponse, memoryview], None]
"""Is given a pull's response, and its records as a view that is good until it returns."""


@dataclass(frozen=True, slots=True)
class SendResponse:
    """What a broker answered to a send that it stored; *code* says how safely."""

    code: ResponseCode
    offset_msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None
    region_id: str | None
    trace_on: str | None
    recall_handle: str | None = None
    version: int = CURRENT_VERSION
    """Of the broker."""


class BrokerApi:
    """Calls over *remoting* in the name of *client_id*.

    What is given, and what comes back, has the names of *namespace*; ``call``, and what it is given, those of brokers.
    """

    def __init__(
        self,
        remoting: RemotingClient,
        client_id: str,
        call_timeout_s: float,
        admin_timeout_s: float,
        namespace: Namespace | None = None,
        doubt: Callable[[str], None] = lambda address: None,
        waiting_sends: WaitingSends | None = None,
    ) -> None:
        """*doubt* is told the address of a broker that is not there, is silent, or cannot serve.

        *waiting_sends* hears of each send that waits for its answer.
        """
        self._remoting = remoting
        self._client_id = client_id
        self._names = Namespace() if namespace is None else namespace
        self._call_timeout_s = call_timeout_s
        self._admin_timeout_s = admin_timeout_s
        self._doubt = doubt
        self._waiting_sends = waiting_sends

    async def call(
        self,
        address: str,
        code: RequestCode,
        values: Mapping[str, Any] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        accepted: Iterable[int] = (ResponseCode.SUCCESS,),
        close_on_timeout: bool = True,
        read: AnswerReader | None = None,
    ) -> RemotingCommand:
        """Send one request and return its answer; BrokerError when its code is not among *accepted*."""
        timeout_s = self._admin_timeout_s if timeout_s is None else timeout_s
        command = request(code, values, body)
        try:
            answer = await self._remoting.invoke(
                address, command, timeout_s, close_on_timeout=close_on_timeout, read=read
            )
        except RemotingError as error:
            # Callers that wait for one connection share its error, so that has no topic.
            error.at(broker=address, topic="" if isinstance(error, RemotingConnectError) else self._topic_of(values))
            self._doubt(address)
            raise
        if answer.code not in accepted:
            refused = BrokerError(answer.code, answer.remark or "", address).at(topic=self._topic_of(values))
            if is_doubtful(refused):
                self._doubt(address)
            raise refused
        return answer

    # Sending.

    async def send(
        self, address: str, code: RequestCode, values: Mapping[str, Any], body: bytes, timeout_s: float
    ) -> SendResponse:
        answer = await self._send(address, code, values, body, timeout_s)
        header = RESPONSE_HEADERS[code].decode(answer.ext_fields)
        return SendResponse(
            code=ResponseCode(answer.code),
            offset_msg_id=header["msg_id"],
            queue_id=header["queue_id"],
            queue_offset=header["queue_offset"],
            transaction_id=header["transaction_id"],
            region_id=header["msg_region"],
            trace_on=header["trace_on"],
            recall_handle=(answer.ext_fields or {}).get("recallHandle"),
            version=answer.version,
        )

    async def _send(
        self, address: str, code: RequestCode, values: Mapping[str, Any], body: bytes, timeout_s: float
    ) -> RemotingCommand:
        if self._waiting_sends is None:
            return await self.call(address, code, values, body, timeout_s=timeout_s, accepted=STORED_CODES)
        send, is_answered = PendingSend(address), False
        self._waiting_sends.begin(send)
        try:
            answer = await self.call(address, code, values, body, timeout_s=timeout_s, accepted=STORED_CODES)
            is_answered = True
            return answer
        finally:
            self._waiting_sends.end(send, is_answered=is_answered)

    async def recall(self, address: str, group: str, topic: str, handle: str, timeout_s: float) -> str:
        """Take a message back that waits for its time; return its id."""
        names = self._names
        values = {"topic": names.wrap(topic), "recall_handle": handle, "producer_group": names.wrap(group)}
        answer = await self.call(address, RequestCode.RECALL_MESSAGE, values, timeout_s=timeout_s)
        return (answer.ext_fields or {}).get("msgId", "")

    async def send_oneway(
        self, address: str, code: RequestCode, values: Mapping[str, Any], body: bytes, timeout_s: float
    ) -> None:
        await self._remoting.invoke_oneway(address, request(code, values, body), timeout_s)

    async def send_back(
        self, address: str, group: str, message: MessageExt, delay_level: int, times_max: int, timeout_s: float
    ) -> None:
        """Give a failed message back to the group's retry topic."""
        values = {
            "offset": message.physical_offset,
            "group": self._names.wrap(group),
            "delay_level": delay_level,
            "origin_msg_id": message.msg_id,
            "origin_topic": message.topic,
            "max_reconsume_times": times_max,
            "bname": message.broker_name,
        }
        await self.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, values, timeout_s=timeout_s)

    # Pulling and offsets.

    async def pull(
        self, address: str, pull: PullRequest, timeout_s: float, take: PullTaker | None = None
    ) -> PullResponse:
        """Pull once. A pull that times out keeps its connection: the broker may rightly hold it.

        *take* gets the records of SUCCESS while they still lie in the memory that was read into; then the response has
        none. What it raises is raised here.
        """
        response: PullResponse | None = None

        def read(answer: RemotingCommand, body: memoryview) -> None:
            nonlocal response
            if answer.code == ResponseCode.SUCCESS and take is not None:
                response = _pull_response(answer)
                take(response, body)
            else:
                answer.body = bytes(body)

        code = RequestCode.PULL_MESSAGE
        values = {
            "consumer_group": self._names.wrap(pull.group),
            "topic": self._names.wrap(pull.queue.topic),
            "queue_id": pull.queue.queue_id,
            "queue_offset": pull.offset,
            "max_msg_nums": pull.messages_max,
            "sys_flag": pull.sys_flag,
            "commit_offset": pull.commit_offset or 0,
            "suspend_timeout_millis": int(pull.hold_s * 1000),
            "subscription": pull.subscription,
            "sub_version": pull.sub_version,
            "expression_type": pull.expression_type,
            "bname": pull.queue.broker_name,
        }
        answer = await self.call(
            address, code, values, timeout_s=timeout_s, accepted=PULL_CODES, close_on_timeout=False, read=read
        )
        return _pull_response(answer) if response is None else response

    async def query_consumer_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Return the offset that *group* has stored, or None when the broker has none."""
        values = {"consumer_group": self._names.wrap(group), **self._queue_values(queue)}
        accepted = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self.call(address, code, values, timeout_s=OFFSET_TIMEOUT_S, accepted=accepted)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return int(RESPONSE_HEADERS[code].decode(answer.ext_fields)["offset"])

    async def update_consumer_offset(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Store an offset, also a smaller one than before."""
        values = {
            "consumer_group": self._names.wrap(group), "commit_offset": offset, **self._queue_values(queue),
        }  # fmt: skip
        await self.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, values, timeout_s=OFFSET_TIMEOUT_S)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will have."""
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, self._queue_values(queue))

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset of the queue's first message that is still there."""
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, self._queue_values(queue))

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the message stored at *timestamp_ms*, or the nearest one."""
        values = {"timestamp": timestamp_ms, **self._queue_values(queue)}
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, values)

    async def _offset(self, address: str, code: RequestCode, values: Mapping[str, Any]) -> int:
        answer = await self.call(address, code, values)
        return int(RESPONSE_HEADERS[code].decode(answer.ext_fields)["offset"])

    # Groups.

    async def heartbeat(self, address: str, heartbeat: HeartbeatData) -> tuple[int, str | None]:
        """Tell a broker who is here; return its version, and what it has to say: mqcore's names conflicts."""
        body = self._names.wrap_heartbeat(heartbeat).encode()
        answer = await self.call(address, RequestCode.HEART_BEAT, body=body, timeout_s=self._call_timeout_s)
        return answer.version, answer.remark

    async def unregister(
        self, address: str, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        values = {
            "client_id": self._client_id,
            "producer_group": None if producer_group is None else self._names.wrap(producer_group),
            "consumer_group": None if consumer_group is None else self._names.wrap(consumer_group),
        }
        await self.call(address, RequestCode.UNREGISTER_CLIENT, values, timeout_s=self._call_timeout_s)

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of the members of *group*; BrokerError when it has none."""
        values = {"consumer_group": self._names.wrap(group)}
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        answer = await self.call(address, code, values, timeout_s=self._call_timeout_s)
        return ConsumerList.decode(answer.body).consumer_id_list

    async def check_subscription(self, address: str, group: str, subscription: SubscriptionData) -> None:
        """Let a broker compile an expression; BrokerError tells why it cannot."""
        names = self._names
        body = CheckClientRequestBody(
            self._client_id, names.wrap(group), names.wrap_subscription(subscription)
        ).encode()
        await self.call(address, RequestCode.CHECK_CLIENT_CONFIG, body=body, timeout_s=self._call_timeout_s)

    async def lock(self, address: str, group: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock *queues* for this client; return those that are locked for it now.

        A second without an answer is no reason to hang up, which Java does: the broker would take it for a leave, and
        the others would get all queues of a member that has its locks.
        """
        body, code = self._lock_body(group, queues), RequestCode.LOCK_BATCH_MQ
        answer = await self.call(address, code, body=body, timeout_s=LOCK_TIMEOUT_S, close_on_timeout=False)
        return {self._names.unwrap_queue(queue) for queue in LockBatchResponseBody.decode(answer.body).lock_ok_mq_set}

    async def unlock(self, address: str, group: str, queues: Iterable[MessageQueue]) -> None:
        body, code = self._lock_body(group, queues), RequestCode.UNLOCK_BATCH_MQ
        await self.call(address, code, body=body, timeout_s=LOCK_TIMEOUT_S, close_on_timeout=False)

    def _lock_body(self, group: str, queues: Iterable[MessageQueue]) -> bytes:
        names = self._names
        return LockBatchRequestBody(names.wrap(group), self._client_id, names.wrap_queues(queues)).encode()

    # Names.

    def _topic_of(self, values: Mapping[str, Any] | None) -> str:
        return self._names.unwrap(str((values or {}).get("topic") or ""))

    def _queue_values(self, queue: MessageQueue) -> dict[str, Any]:
        topic = self._names.wrap(queue.topic)
        return {"topic": topic, "queue_id": queue.queue_id, "bname": queue.broker_name}


def request(code: RequestCode, values: Mapping[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
    """Build a request of ours; without *values* it has no ext fields."""
    ext_fields = None if values is None else encode_request(code, **values)
    return RemotingCommand(code, ext_fields=ext_fields, body=body, language=LanguageCode.PYTHON)


def _pull_response(answer: RemotingCommand) -> PullResponse:
    header = RESPONSE_HEADERS[RequestCode.PULL_MESSAGE].decode(answer.ext_fields)
    return PullResponse(
        code=ResponseCode(answer.code),
        next_offset=header["next_begin_offset"],
        min_offset=header["min_offset"],
        max_offset=header["max_offset"],
        suggested_broker_id=header["suggest_which_broker_id"],
        body=answer.body,
    )
