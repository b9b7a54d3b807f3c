"""Producers whose sends have spans. They go the same ways: what is given soon still travels in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.trace import SpanKind

from mqcore.client.model.messages import Message, ReceivedMessage
from mqcore.client.model.receipt import SendReceipt
from mqcore.client.model.selectors import QueueSelector, ShardKey
from mqcore.client.model.transaction import TransactionReceipt, TransactionState
from mqcore.client.plain import client as plain
from mqcore.client.produce import producer as asynchronous
from mqcore.client.produce import transactions
from mqcore.client.produce.batching import SendFuture
from mqcore.client.produce.request_reply import create_reply
from mqcore.otel import conventions as sem
from mqcore.otel.spans import SendSpans, failed
from mqcore.protocol.message import MessageQueue

REQUEST = "request"


class TracedAsyncProducer(asynchronous.Producer):
    """A producer of mqcore.aio whose sends have spans, by *spans*."""

    spans: SendSpans

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        with self.spans.sending(message, shard_key) as sending:
            receipt = await super().send(
                sending.message, queue=queue, shard_key=shard_key, selector=selector, timeout_s=timeout_s
            )
            sending.stored(receipt)
            return receipt

    async def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> SendFuture:
        sending = self.spans.begin(message, shard_key)
        try:
            future = await super().send_soon(sending.message, queue=queue, shard_key=shard_key, selector=selector)
        except BaseException as error:
            failed(sending.span, error)
            sending.span.end()
            raise
        future.add_done_callback(sending.done)
        return future

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        with self.spans.sending(message, shard_key) as sending:
            await super().send_oneway(sending.message, queue=queue, shard_key=shard_key, selector=selector)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        split: bool = True,
    ) -> list[SendReceipt]:
        with self.spans.batch(messages) as (made, _):
            return await super().send_batch(made, queue=queue, timeout_s=timeout_s, split=split)

    async def request(
        self,
        message: Message,
        timeout_s: float | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> ReceivedMessage:
        with self.spans.sending(message, shard_key, REQUEST, SpanKind.CLIENT) as sending:
            return await super().request(
                sending.message, timeout_s, queue=queue, shard_key=shard_key, selector=selector
            )


class TracedAsyncTransactionProducer(TracedAsyncProducer, transactions.TransactionProducer):
    """The same that can send in transactions: the half and its end have a span each."""

    async def send_half(self, message: Message, *, timeout_s: float | None = None) -> SendReceipt:
        with self.spans.sending(message) as sending:
            sending.span.set_attribute(sem.KIND, "transaction")
            receipt = await super().send_half(sending.message, timeout_s=timeout_s)
            sending.stored(receipt)
            return receipt

    async def end(
        self, message: Message, receipt: SendReceipt, state: TransactionState, error: BaseException | None = None
    ) -> TransactionReceipt:
        with self.spans.ending(message, receipt, state):
            return await super().end(message, receipt, state, error)


class TracedProducer(plain.Producer):
    """A producer of mqcore.client whose sends have spans, by *spans*: begun in the thread that sends."""

    spans: SendSpans

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        with self.spans.sending(message, shard_key) as sending:
            receipt = super().send(
                sending.message, queue=queue, shard_key=shard_key, selector=selector, timeout_s=timeout_s
            )
            sending.stored(receipt)
            return receipt

    def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> SendFuture:
        sending = self.spans.begin(message, shard_key)
        try:
            future = super().send_soon(sending.message, queue=queue, shard_key=shard_key, selector=selector)
        except BaseException as error:
            failed(sending.span, error)
            sending.span.end()
            raise
        future.add_done_callback(sending.done)
        return future

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        with self.spans.sending(message, shard_key) as sending:
            super().send_oneway(sending.message, queue=queue, shard_key=shard_key, selector=selector)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        split: bool = True,
    ) -> list[SendReceipt]:
        with self.spans.batch(messages) as (made, _):
            return super().send_batch(made, queue=queue, timeout_s=timeout_s, split=split)

    def request(
        self,
        message: Message,
        timeout_s: float | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> ReceivedMessage:
        with self.spans.sending(message, shard_key, REQUEST, SpanKind.CLIENT) as sending:
            return super().request(sending.message, timeout_s, queue=queue, shard_key=shard_key, selector=selector)

    def reply(
        self,
        request: ReceivedMessage,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        # That of the asyncio producer calls its own ``send``, in the event loop's thread and without a span.
        answer = create_reply(request, body, tag=tag, keys=tuple(keys), properties=properties)
        return self.send(answer, timeout_s=timeout_s)


class TracedTransactionProducer(TracedProducer, plain.TransactionProducer):
    """The same that can send in transactions: the half and its end have a span each."""

    def send_half(self, message: Message, *, timeout_s: float | None = None) -> SendReceipt:
        with self.spans.sending(message) as sending:
            sending.span.set_attribute(sem.KIND, "transaction")
            receipt = super().send_half(sending.message, timeout_s=timeout_s)
            sending.stored(receipt)
            return receipt

    def end(
        self, message: Message, receipt: SendReceipt, state: TransactionState, error: BaseException | None = None
    ) -> TransactionReceipt:
        with self.spans.ending(message, receipt, state):
            return super().end(message, receipt, state, error)
