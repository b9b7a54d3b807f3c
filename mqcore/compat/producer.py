"""Java's DefaultMQProducer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self, overload

from mqcore import client
from mqcore.client import Producer, SendReceipt
from mqcore.compat.config import AclClientRPCHook, ClientConfig
from mqcore.compat.message import Message, MessageExt, MessageQueue, SendResult, core_queue
from mqcore.compat.request_reply import RequestCallback
from mqcore.compat.selectors import MessageQueueSelector, SelectFunction, for_core
from mqcore.errors import ClientError
from mqcore.protocol.message import MessageQueue as CoreMessageQueue

ASYNC_THREADS = 8
REQUEST_TIMEOUT_MS = 3000


class SendCallback:
    """Hears what became of an asynchronous send. Override the methods, or give functions."""

    def __init__(
        self,
        on_success: Callable[[SendResult], object] | None = None,
        on_exception: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._on_success = on_success
        self._on_exception = on_exception

    def on_success(self, send_result: SendResult) -> None:
        if self._on_success is not None:
            self._on_success(send_result)

    def on_exception(self, error: BaseException) -> None:
        if self._on_exception is not None:
            self._on_exception(error)


Selector = MessageQueueSelector | SelectFunction
Argument = MessageQueue | Selector | SendCallback | object


@dataclass(slots=True)
class HowToSend:
    """What stood behind the message in a call of ``send``."""

    queue: CoreMessageQueue | None = None
    selector: Selector | None = None
    argument: object = None
    callback: SendCallback | RequestCallback | None = None
    timeout_s: float | None = None

    @classmethod
    def read(cls, arguments: Sequence[object]) -> Self:
        """Read [queue | selector, argument] [callback] [timeout in ms], as Java's many forms of ``send`` have it."""
        how, rest = cls(), list(arguments)
        if rest and isinstance(rest[0], CoreMessageQueue):
            how.queue = core_queue(rest.pop(0))  # type: ignore[arg-type]  # looked at in the line before
        elif rest and (isinstance(rest[0], MessageQueueSelector) or callable(rest[0])):
            how.selector = rest.pop(0)  # type: ignore[assignment]  # looked at in the line before
            if not rest:
                raise TypeError("send(message, selector, argument): the argument of the selector is missing")
            how.argument = rest.pop(0)
        if rest and isinstance(rest[0], SendCallback | RequestCallback):
            how.callback = rest.pop(0)  # type: ignore[assignment]  # looked at in the line before
        if rest and isinstance(rest[0], int | float):
            how.timeout_s = float(rest.pop(0)) / 1000  # type: ignore[arg-type]  # looked at in the line before
        if rest:
            raise TypeError(f"send: nothing is known of {rest[0]!r} at this place")
        return how


class DefaultMQProducer(ClientConfig):
    """Sends messages. Set it up, ``start`` it, ``send``, ``shutdown``. Threads may share it."""

    def __init__(
        self,
        producer_group: str = "",
        rpc_hook: AclClientRPCHook | None = None,
        enable_msg_trace: bool = False,
        customized_trace_topic: str | None = None,
    ) -> None:
        super().__init__(rpc_hook)
        self._group = producer_group
        self._producer: Producer | None = None
        self._async_pool: ThreadPoolExecutor | None = None
        self._async_lock = threading.Lock()
        if enable_msg_trace:
            self._settings |= {"trace": True, "trace_topic": customized_trace_topic}

    # Settings.

    def get_producer_group(self) -> str:
        return self._group

    def set_producer_group(self, group: str) -> None:
        self._group = group

    def set_send_msg_timeout(self, timeout_ms: int) -> None:
        self._settings["send_timeout_s"] = timeout_ms / 1000

    def set_retry_times_when_send_failed(self, times: int) -> None:
        self._settings["retries"] = times

    def set_retry_times_when_send_async_failed(self, times: int) -> None:
        """Set the same number as ``set_retry_times_when_send_failed``: there is one for both."""
        self._settings["retries"] = times

    def set_retry_another_broker_when_not_store_ok(self, retry: bool) -> None:
        self._settings["retry_another_broker_when_not_store_ok"] = retry

    def set_compress_msg_body_over_howmuch(self, size: int) -> None:
        self._settings["compress_over_bytes"] = size

    def set_max_message_size(self, size: int) -> None:
        self._settings["max_message_size_bytes"] = size

    def set_default_topic_queue_nums(self, count: int) -> None:
        self._settings["default_topic_queue_nums"] = count

    def set_create_topic_key(self, topic: str) -> None:
        self._settings["create_topic_key"] = topic

    def set_send_latency_fault_enable(self, enable: bool) -> None:
        self._settings["send_latency_fault_enable"] = enable

    def set_vip_channel_enabled(self, enable: bool) -> None:
        self._settings["vip_channel"] = enable

    # Life cycle.

    def start(self) -> None:
        if not self._group:
            raise ClientError("the producer has no group: give one, or call set_producer_group")
        opened = self._open_client()
        try:
            self._producer = self._make_producer(opened)
            self._producer.start()
        except BaseException:
            opened.close()
            raise

    def shutdown(self) -> None:
        """Wait for sends under way, leave the group, close the connections."""
        if self._async_pool is not None:
            self._async_pool.shutdown()
        if self._producer is not None:
            self._producer.close()
        self._close_client()

    # Sending.

    @overload
    def send(self, messages: Message | Sequence[Message], timeout: float = ..., /) -> SendResult: ...
    @overload
    def send(
        self, messages: Message | Sequence[Message], queue: CoreMessageQueue, timeout: float = ..., /
    ) -> SendResult: ...
    @overload
    def send(self, messages: Message, callback: SendCallback, timeout: float = ..., /) -> None: ...
    @overload
    def send(
        self, messages: Message, queue: CoreMessageQueue, callback: SendCallback, timeout: float = ..., /
    ) -> None: ...
    @overload
    def send(
        self, messages: Message, selector: Selector, argument: object, callback: SendCallback, timeout: float = ..., /
    ) -> None: ...
    @overload
    def send(self, messages: Message, selector: Selector, argument: object, timeout: float = ..., /) -> SendResult: ...

    def send(self, messages: Message | Sequence[Message], *arguments: object) -> SendResult | None:
        """Send a message, or a list of messages of one topic, in Java's forms; times are milliseconds.

        ``send(m)``, ``send(m, queue)``, ``send(m, selector, argument)``, each with a SendCallback (then it returns None
        at once), with a timeout, or with both behind it.
        """
        how = HowToSend.read(arguments)
        callback = how.callback
        if callback is None:
            return self._send(messages, how)
        if not isinstance(callback, SendCallback):
            raise TypeError("send: wanted a SendCallback, got a RequestCallback")
        self._pool().submit(self._send_for, messages, how, callback)
        return None

    def send_oneway(self, message: Message, *arguments: object) -> None:
        """Send without waiting for an answer: ``send_oneway(m)``, with a queue, or with a selector and its argument."""
        how = HowToSend.read(arguments)
        selector = None if how.selector is None else for_core(how.selector, message, how.argument)
        self._running().send_oneway(message.to_core(), queue=how.queue, selector=selector)

    @overload
    def request(self, message: Message, timeout: float = ..., /) -> MessageExt: ...
    @overload
    def request(self, message: Message, queue: CoreMessageQueue, timeout: float = ..., /) -> MessageExt: ...
    @overload
    def request(self, message: Message, callback: RequestCallback, timeout: float = ..., /) -> None: ...
    @overload
    def request(
        self, message: Message, queue: CoreMessageQueue, callback: RequestCallback, timeout: float = ..., /
    ) -> None: ...
    @overload
    def request(
        self, message: Message, selector: Selector, argument: object, callback: RequestCallback, timeout: float = ..., /
    ) -> None: ...
    @overload
    def request(
        self, message: Message, selector: Selector, argument: object, timeout: float = ..., /
    ) -> MessageExt: ...

    def request(self, message: Message, *arguments: object) -> MessageExt | None:
        """Send *message* and return the reply that one of its consumers sends, within a timeout in ms.

        The forms are those of ``send``, with a RequestCallback in place of a SendCallback: it is called once, with the
        reply or with what went wrong.
        """
        how = HowToSend.read(arguments)
        callback = how.callback
        if callback is None:
            return self._request(message, how)
        if not isinstance(callback, RequestCallback):
            raise TypeError("request: wanted a RequestCallback, got a SendCallback")
        self._pool().submit(self._request_for, message, how, callback)
        return None

    def reply(self, request: MessageExt, body: bytes) -> SendResult:
        """Answer *request*: Java's MessageUtil.createReplyMessage and send in one."""
        return SendResult([self._running().reply(request.received, body)])

    def fetch_publish_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues to which *topic* can be sent."""
        return [MessageQueue.of(queue) for queue in self._running().queues(topic)]

    # The inside.

    def _make_producer(self, opened: client.Client) -> Producer:
        return opened.producer(self._group, **self._settings)

    def _running(self) -> Producer:
        if self._producer is None:
            raise ClientError("The producer service state not OK, CREATE_JUST: call start first")
        return self._producer

    def _pool(self) -> ThreadPoolExecutor:
        self._running()
        with self._async_lock:
            if self._async_pool is None:
                self._async_pool = ThreadPoolExecutor(ASYNC_THREADS, "mqcore async send")
            return self._async_pool

    def _send(self, messages: Message | Sequence[Message], how: HowToSend) -> SendResult:
        producer = self._running()
        if not isinstance(messages, Message):
            batch = [message.to_core() for message in messages]
            return SendResult(producer.send_batch(batch, queue=how.queue, timeout_s=how.timeout_s))
        selector = None if how.selector is None else for_core(how.selector, messages, how.argument)
        receipt: SendReceipt = producer.send(
            messages.to_core(), queue=how.queue, selector=selector, timeout_s=how.timeout_s
        )
        return SendResult([receipt])

    def _request(self, message: Message, how: HowToSend) -> MessageExt:
        selector = None if how.selector is None else for_core(how.selector, message, how.argument)
        timeout_s = REQUEST_TIMEOUT_MS / 1000 if how.timeout_s is None else how.timeout_s
        return MessageExt(self._running().request(message.to_core(), timeout_s, queue=how.queue, selector=selector))

    def _request_for(self, message: Message, how: HowToSend, callback: RequestCallback) -> None:
        try:
            reply = self._request(message, how)
        except Exception as error:  # the callback hears of every failure, as nobody else does
            callback.on_exception(error)
        else:
            callback.on_success(reply)

    def _send_for(self, messages: Message | Sequence[Message], how: HowToSend, callback: SendCallback) -> None:
        try:
            result = self._send(messages, how)
        except Exception as error:  # the callback hears of every failure, as nobody else does
            callback.on_exception(error)
        else:
            callback.on_success(result)
