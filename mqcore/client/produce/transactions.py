"""Messages that are delivered only if a local transaction succeeds.

The message goes to the broker as a half, which nobody receives. Then the local transaction runs, and the broker is told
its outcome: deliver, or drop. When nobody tells, because the outcome was not known or the producer died, the broker
asks a producer of the group, again and again, and the producer's *check* answers from what it can look up.
Source: RocketMQ DefaultMQProducerImpl.java, sendMessageInTransaction, endTransaction, checkTransactionState.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from mqcore.cause_log import CauseLog
from mqcore.client.model.messages import Message, ReceivedMessage
from mqcore.client.model.namespace import Namespace
from mqcore.client.model.receipt import SendReceipt, SendStatus
from mqcore.client.model.transaction import Outcome, TransactionReceipt, TransactionState
from mqcore.client.produce.producer import Producer
from mqcore.client.session.broker_api import request
from mqcore.client.session.handler_threads import HandlerThreads
from mqcore.client.session.tasks import cancel_and_wait
from mqcore.client.settings.classes import ProducerSettings
from mqcore.client.telemetry.producer_hooks import EndTransactionContext
from mqcore.codes import RequestCode, SysFlag
from mqcore.errors import ArgumentError, MQError
from mqcore.protocol import properties as names
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import decode_request
from mqcore.protocol.message import MessageQueue, decode_offset_message_id
from mqcore.protocol.message_decoder import decode_message
from mqcore.transport.connection import Connection

if TYPE_CHECKING:
    from mqcore.client.session.session import Session

log = CauseLog(logging.getLogger(__name__))

CHECK_ANSWER_TIMEOUT_S = 3.0


Execute = Callable[[Message, SendReceipt], Outcome | Awaitable[Outcome]]
"""(message, receipt of its half) -> outcome of the local transaction, which runs here."""

Check = Callable[[ReceivedMessage], Outcome | Awaitable[Outcome]]
"""(half message, with its real topic) -> what became of its local transaction."""


class TransactionProducer(Producer):
    """A producer that can also send in transactions. Made by ``Client.transaction_producer``.

    *check* is a coroutine function, or a plain function that is then called in a thread. It is asked about halves of
    this group, which may be those of another producer that has died. What it raises counts as UNKNOWN: the broker asks
    again, 15 times in all by default, and then drops the message.
    """

    def __init__(self, hub: Session, group: str, settings: ProducerSettings, check: Check) -> None:
        super().__init__(hub, group, settings)
        self._check = check
        self._checks: set[asyncio.Task[None]] = set()
        self._check_places = asyncio.Semaphore(settings.check_concurrency)
        self._check_threads: HandlerThreads | None = None

    async def start(self) -> None:
        if not is_async(self._check):
            self._check_threads = HandlerThreads(self._settings.check_concurrency, "mqcore transaction check")
        await super().start()
        self._hub.shared(TransactionQuestions).producers[self.group] = self

    async def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Refuse new sends, leave the group and stop answering questions; the broker will ask another producer."""
        self._hub.shared(TransactionQuestions).producers.pop(self.group, None)
        await super().close(drain=drain, timeout_s=timeout_s)
        await cancel_and_wait(*self._checks)
        if self._check_threads is not None:
            self._check_threads.shutdown(wait=False, cancel_futures=True)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_s: float | None = None
    ) -> TransactionReceipt:
        """Send *message* as a half, run *execute*, and tell the broker the outcome.

        *execute* is a coroutine function, or a plain function that must not block the event loop. What it raises counts
        as UNKNOWN and is logged: the broker will ask. It is not run, and the half is rolled back, when the broker could
        not store the half safely. A delay of *message* is left out. Raises what ``send`` raises, when no half was sent.
        """
        return await in_transaction(
            message,
            execute,
            lambda: self.send_half(message, timeout_s=timeout_s),
            lambda receipt, state, error: self.end(message, receipt, state, error),
        )

    async def send_half(self, message: Message, *, timeout_s: float | None = None) -> SendReceipt:
        """Send *message* as a half, which ``end`` then decides about: the two steps of ``send_in_transaction``."""
        outgoing = self._outgoing(replace(message, delay_level=0) if message.delay_level else message)
        outgoing.properties[names.PROPERTY_TRANSACTION_PREPARED] = "true"
        outgoing.properties[names.PROPERTY_PRODUCER_GROUP] = self._hub.namespace.wrap(self.group)
        outgoing.sys_flag |= SysFlag.TRANSACTION_PREPARED
        # A broker that has had no heart-beat of ours finds nobody to ask, and drops the message after some questions.
        await self._hub.make_known(await self._core.publish_queues(message.topic))
        return await self._send_outgoing(outgoing, timeout_s=timeout_s)

    async def end(
        self, message: Message, receipt: SendReceipt, state: TransactionState, error: BaseException | None = None
    ) -> TransactionReceipt:
        """Tell the broker the outcome of the local transaction, and *error*, which left it unknown.

        That the broker hears it is not certain, and not needed: it asks about what it has not heard of.
        """
        if error is not None:
            log.warning(
                "local transaction failed, the broker will ask",
                exc_info=error,
                group=self.group,
                topic=message.topic,
                msg_id=receipt.msg_id,
            )
        result = TransactionReceipt(
            **{field.name: getattr(receipt, field.name) for field in fields(SendReceipt)}, state=state
        )
        try:
            address = await self._core.address_of(receipt.queue)
            values = {
                "producer_group": self._hub.namespace.wrap(self.group),
                "tran_state_table_offset": receipt.offset,
                "commit_log_offset": decode_offset_message_id(receipt.offset_msg_id or receipt.msg_id).physical_offset,
                "commit_or_rollback": int(state),
                "from_transaction_check": False,
                "msg_id": receipt.msg_id,
                "transaction_id": receipt.transaction_id,
                "bname": receipt.queue.broker_name,
                "topic": self._hub.namespace.wrap(message.topic),
            }
            remark = None if error is None else f"executeLocalTransactionBranch exception: {describe(error)}"
            properties = message.wire_properties()
            await self._tell(address, values, state, properties, remark, self._settings.send_timeout_s)
        except MQError as failure:
            log.warning(
                "outcome of a transaction not sent, the broker will ask",
                group=self.group,
                broker=receipt.queue.broker_name,
                msg_id=receipt.msg_id,
                state=state.name,
                error=failure,
            )
        return result

    # Questions.

    def check_soon(self, address: str, command: RemotingCommand, message: ReceivedMessage) -> None:
        """Answer a broker's question about *message* in the background."""
        if len(self._checks) >= self._settings.check_queue_max:
            log.warning("too many questions about transactions, dropped", group=self.group, waiting=len(self._checks))
            return
        task = asyncio.create_task(self._answer(address, command, message), name=f"mqcore check {self.group}")
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _answer(self, address: str, command: RemotingCommand, message: ReceivedMessage) -> None:
        remark: str | None = None
        async with self._check_places:
            try:
                state = TransactionState(await self._ask(message) or TransactionState.UNKNOWN)
            except Exception as error:
                log.warning(
                    "transaction check failed, the broker will ask again",
                    exc_info=error,
                    group=self.group,
                    topic=message.topic,
                    msg_id=message.msg_id,
                )
                state, remark = TransactionState.UNKNOWN, f"checkLocalTransactionState Exception: {describe(error)}"
        asked = decode_request(command.code, command.ext_fields)
        values = {
            "producer_group": self._hub.namespace.wrap(self.group),
            "tran_state_table_offset": asked["tran_state_table_offset"],
            "commit_log_offset": asked["commit_log_offset"],
            "commit_or_rollback": int(state),
            "from_transaction_check": True,
            "msg_id": message.msg_id,
            "transaction_id": asked["transaction_id"],
            "bname": asked["bname"],
            "topic": self._hub.namespace.wrap(message.topic),
        }
        try:
            await self._tell(address, values, state, dict(message.properties), remark, CHECK_ANSWER_TIMEOUT_S)
        except MQError as failure:
            log.warning(
                "transaction check not answered",
                group=self.group,
                address=address,
                msg_id=message.msg_id,
                error=failure,
            )

    async def _ask(self, message: ReceivedMessage) -> Outcome:
        if self._check_threads is None:
            outcome = self._check(message)
        else:
            outcome = await asyncio.get_running_loop().run_in_executor(self._check_threads, self._check, message)
        return await outcome if inspect.isawaitable(outcome) else outcome

    async def _tell(
        self,
        address: str,
        values: dict[str, object],
        state: TransactionState,
        properties: dict[str, str],
        remark: str | None,
        timeout_s: float,
    ) -> None:
        context = EndTransactionContext(
            group=self.group,
            topic=self._hub.namespace.unwrap(str(values["topic"])),
            properties=properties,
            broker_address=address,
            msg_id=str(values["msg_id"]),
            transaction_id=properties.get(names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, str(values["msg_id"])),
            state=state,
            from_check=bool(values["from_transaction_check"]),
        )
        await self._core.hooks.end_transaction(context)
        command = request(RequestCode.END_TRANSACTION, values)
        command.remark = remark
        await self._hub.remoting.invoke_oneway(address, command, timeout_s)


End = Callable[[SendReceipt, TransactionState, BaseException | None], Awaitable[TransactionReceipt]]
"""(receipt of the half, outcome of the local transaction, what it raised) -> what the broker was told."""


async def in_transaction(
    message: Message, execute: Execute, send_half: Callable[[], Awaitable[SendReceipt]], end: End
) -> TransactionReceipt:
    """Go through the steps of a transaction, which both faces of a producer share: see ``send_in_transaction``."""
    receipt = await send_half()
    if receipt.status is not SendStatus.SEND_OK:
        return await end(receipt, TransactionState.ROLLBACK, None)
    try:
        outcome = execute(message, receipt)
        state = TransactionState(
            (await outcome if inspect.isawaitable(outcome) else outcome) or TransactionState.UNKNOWN
        )
    except Exception as error:
        return await end(receipt, TransactionState.UNKNOWN, error)
    return await end(receipt, state, None)


class TransactionQuestions:
    """Takes brokers' questions about transactions to the producer of their group, one of ``producers``.

    ``Session.shared`` has them. A session answers from its first producer on: a broker may ask about the transactions
    of one that has died.
    """

    def __init__(self, session: Session) -> None:
        self.producers: dict[str, TransactionProducer] = {}
        self._names = session.namespace
        session.inbox.answer(RequestCode.CHECK_TRANSACTION_STATE, self.on_check)

    async def on_check(self, connection: Connection, command: RemotingCommand) -> None:
        """Take a question; it gets no answer of its own."""
        message = read_question(command, self._names)
        group = self._names.unwrap(message.properties.get(names.PROPERTY_PRODUCER_GROUP, ""))
        producer = self.producers.get(group)
        if producer is None:
            log.warning("a broker asks about a transaction of a group that is not here", group=group)
            return
        producer.check_soon(connection.remote_address, command, message)


def read_question(command: RemotingCommand, namespace: Namespace) -> ReceivedMessage:
    """Return the half message that a broker asks about; raise ProtocolError when it cannot be read."""
    ext = decode_message(command.body)
    ext.broker_name = decode_request(command.code, command.ext_fields)["bname"] or ""
    ext.transaction_id = ext.unique_id
    topic = namespace.unwrap(ext.topic)
    return ReceivedMessage(ext, MessageQueue(topic, ext.broker_name, ext.queue_id), topic=topic)


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling *function* gives an awaitable at once, without work: it is safe in the event loop."""
    # An object may have an async __call__.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def describe(error: BaseException) -> str:
    """Return an error in a line for a broker's log."""
    return f"{type(error).__name__}: {error}"


def check_callable(name: str, function: object) -> None:
    """Raise ArgumentError unless *function* can be called."""
    if not callable(function):
        raise ArgumentError(f"{name} is {function!r}, wanted a function")
