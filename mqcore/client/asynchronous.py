"""The client of mqcore.aio: where producers, consumers and pulls begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from mqcore.client.consume.declared import Declared, H, start_declared, wait_declared
from mqcore.client.consume.polled.pull_api import PullApi
from mqcore.client.consume.requests import ConsumerRequests
from mqcore.client.model.counters import ClientCounts, CountsCallback
from mqcore.client.model.subscription import Expression, Topics, topics_with_expressions
from mqcore.client.model.validators import DEFAULT_CONSUMER_GROUP, DEFAULT_PRODUCER_GROUP, check_group
from mqcore.client.produce.producer import Producer
from mqcore.client.produce.request_reply import PendingReplies
from mqcore.client.produce.transactions import Check, TransactionProducer, TransactionQuestions, check_callable
from mqcore.client.session.session import Session
from mqcore.client.session.stop_signals import run_until, stop_signals
from mqcore.client.settings.classes import ClientSettings, ConsumerSettings, ProducerSettings
from mqcore.client.settings.configuration import configure
from mqcore.client.settings.options import ClientOptions, ConsumerOptions, ProducerOptions, PullConsumerOptions
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.client.telemetry.instrumentation import instrumentation_of_new_clients
from mqcore.errors import ConfigError

if TYPE_CHECKING:
    from mqcore.client.admin.api import Admin
    from mqcore.client.consume.handling import BatchHandler, Handler
    from mqcore.client.consume.polled.assignment import QueuesCallback
    from mqcore.client.consume.polled.consumer import PullConsumer
    from mqcore.client.consume.push.consumer import Consumer


class Client(PullApi):
    """A client of the brokers behind some name servers. Used inside ``async with``, from one event loop.

    *name_servers* is ``host:port`` or several of them, separated by ``;``, or a URL. What is not given here comes from
    the environment, the URL and the TOML file *config_file*, in this order; see settings/configuration.py. Other
    keyword arguments are the fields of ClientSettings.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        settings: ClientSettings | None = None,
        *,
        config_file: Path | str | None = None,
        **changes: Unpack[ClientOptions],
    ) -> None:
        self.configuration = configure(name_servers, config_file)
        wanted = self.configuration.settings(ClientSettings(), settings, changes)
        self.instance = put_together(Session(self.configuration.name_servers, wanted))
        super().__init__(self.instance)
        self.instrumentation = instrumentation_of_new_clients()
        self._declared: Declared[Consumer] = Declared(self.consumer)

    @property
    def client_id(self) -> str:
        """The name by which brokers and other members of a group know this client."""
        return self.instance.client_id

    @property
    def admin(self) -> Admin:
        """Administration of the cluster, over the connections of this client.

        Raises ConfigError for a client with a namespace: administration speaks of names as brokers have them.
        """
        if self.instance.namespace:
            raise ConfigError(
                "administration needs a client without a namespace: it speaks of names as brokers have them"
            )
        from mqcore.client.admin.api import Admin  # few ask for it, and it takes long to import

        return Admin(self)

    @property
    def counts(self) -> ClientCounts:
        """What the open producers and consumers have sent and received, by group. From any thread."""
        return self.instance.counts()

    async def report_counts(self, callback: CountsCallback, *, every_s: float = 10.0) -> None:
        """Call *callback* with the counts every *every_s* seconds until the client is closed, and start the client.

        It is called in the client's event loop and must not block. What it raises is logged.
        """
        await self.instance.report_counts(callback, every_s)

    async def start(self) -> None:
        """Begin the background work, and the consumers of handlers that were declared by ``on``.

        Nothing is connected before it is needed.
        """
        await self.instance.start()
        await start_declared(self._declared)

    async def run(self, *, signals: Iterable[int] | None = None) -> None:
        """Start the handlers declared by ``on`` and return when the client is closed; cancelled, close it first.

        In the main thread SIGTERM and SIGINT, or the *signals* that are given, close it, too: handlers finish what they
        have in hand, in at most close_timeout_s, offsets are committed, groups left. A second one ends the program as
        it would without this.
        """
        stop = asyncio.Event()
        try:
            with stop_signals(signals, partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set)):
                await run_until(stop, self._serve())
        finally:
            await self.close()

    async def _serve(self) -> None:
        await self.start()
        await wait_declared(self._declared)

    async def close(self) -> None:
        """Close consumers and producers that are still open, then the connections."""
        await self.instance.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def producer(
        self, group: str, settings: ProducerSettings | None = None, **changes: Unpack[ProducerOptions]
    ) -> Producer:
        """Return a producer, to be used inside ``async with``. Keyword arguments are the fields of ProducerSettings."""
        group = self._short(check_group(group, DEFAULT_PRODUCER_GROUP))
        wanted = self.configuration.settings(ProducerSettings(), settings, changes)
        return self.instrumentation.make(Producer, self.instance, group, wanted)

    def transaction_producer(
        self, group: str, check: Check, settings: ProducerSettings | None = None, **changes: Unpack[ProducerOptions]
    ) -> TransactionProducer:
        """Return a producer that can also send in transactions, to be used inside ``async with``.

        *check* is asked by brokers, sooner or later, what became of a transaction of *group*; see TransactionProducer.
        """
        group = self._short(check_group(group, DEFAULT_PRODUCER_GROUP))
        check_callable("check", check)
        wanted = self.configuration.settings(ProducerSettings(), settings, changes)
        return self.instrumentation.make(TransactionProducer, self.instance, group, wanted, check)

    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        handler: Handler | None = None,
        batch_handler: BatchHandler | None = None,
        settings: ConsumerSettings | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Return a consumer, to be used inside ``async with``. Keyword arguments are the fields of ConsumerSettings.

        *topics* is a topic, several, or topics with expressions: ``{"Orders": "new || paid"}``. *handler* is called for
        each message, *batch_handler* for up to ``batch_size`` messages of a queue; with neither, iterate.
        """
        from mqcore.client.consume.handling import EachMessage, check_async  # who only sends does without all of it
        from mqcore.client.consume.push.consumer import Consumer

        group = self._short(check_group(group, DEFAULT_CONSUMER_GROUP))
        if handler is not None and batch_handler is not None:
            raise ConfigError("give handler or batch_handler, not both")
        for given in (handler, batch_handler):
            if given is not None:
                check_async(given)
        if handler is not None:
            batch_handler = EachMessage(self._watched(group, handler, is_batch=False))
        elif batch_handler is not None:
            batch_handler = self._watched(group, batch_handler, is_batch=True)
        wanted = self.configuration.settings(ConsumerSettings(), settings, changes)
        subscriptions = self._subscriptions(topics)
        return self.instrumentation.make(Consumer, self.instance, group, subscriptions, wanted, batch_handler)

    def _watched(self, group: str, handler: H, *, is_batch: bool) -> H:
        from mqcore.client.consume.push.in_threads import ThreadHandler

        if isinstance(handler, ThreadHandler):
            return handler  # what runs in the thread is watched there
        return self.instrumentation.handler(group, handler, is_batch=is_batch)

    def on(
        self,
        topics: Topics,
        *,
        group: str,
        batch: int | None = None,
        settings: ConsumerSettings | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> Callable[[H], H]:
        """Return a decorator that makes a function the handler of *topics* for *group*; see ``consumer``.

        With *batch* it is called with up to so many messages, and may return a Done. The consumer starts with the
        client, or with the next ``start`` or ``run``.
        """
        return self._declared.on(topics, group=group, batch=batch, settings=settings, **changes)

    def pull_consumer(
        self,
        group: str,
        topics: Topics = (),
        *,
        on_assigned: QueuesCallback | None = None,
        on_revoked: QueuesCallback | None = None,
        settings: PullConsumerSettings | None = None,
        **changes: Unpack[PullConsumerOptions],
    ) -> PullConsumer:
        """Return a consumer that is polled, to be used inside ``async with``: what Java calls lite pull.

        *topics* are shared with the group; without any, ``subscribe`` or ``assign`` follow. *on_assigned* and
        *on_revoked* hear of queues that come, before they are pulled, and that go, before they are given up: they may
        seek, pause and commit, but not subscribe, assign or close. Other keyword arguments are the fields of
        PullConsumerSettings.
        """
        from mqcore.client.consume.polled.consumer import PullConsumer  # not everybody polls

        group = self._short(check_group(group, DEFAULT_CONSUMER_GROUP))
        wanted = self.configuration.settings(PullConsumerSettings(), settings, changes)
        subscriptions = self._subscriptions(topics)
        return self.instrumentation.make(
            PullConsumer, self.instance, group, subscriptions, wanted, on_assigned, on_revoked
        )

    # With a namespace its long names are understood, too.

    def _short(self, name: str) -> str:
        return self.instance.namespace.unwrap(name)

    def _subscriptions(self, topics: Topics) -> dict[str, Expression]:
        return {self._short(topic): expression for topic, expression in topics_with_expressions(topics).items()}


def put_together(session: Session) -> Session:
    """Let whoever answers brokers' requests register with *session*, which itself knows none of them."""
    for answering in (ConsumerRequests, PendingReplies, TransactionQuestions):
        session.shared(answering)
    return session
