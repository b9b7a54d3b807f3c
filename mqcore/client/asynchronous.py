"""The client of mqcore.aio: where producers, consumers and pulls begin."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from mqcore.client.consumer import Consumer
from mqcore.client.consuming import BatchHandler, Handler, as_batch_handler, check_async
from mqcore.client.errors import NoNameServerError
from mqcore.client.instance import ClientInstance
from mqcore.client.name_servers import parse_addresses
from mqcore.client.producer import Producer
from mqcore.client.pull_api import PullApi
from mqcore.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    changed,
    name_servers_from_environment,
)
from mqcore.client.subscription import Topics, topics_with_expressions
from mqcore.client.validators import DEFAULT_CONSUMER_GROUP, DEFAULT_PRODUCER_GROUP, check_group
from mqcore.errors import ConfigError

NO_NAME_SERVER = "no name server address: give one as host:port, or set NAMESRV_ADDR"


class Client(PullApi):
    """A client of the brokers behind some name servers. Used inside ``async with``, from one event loop.

    *name_servers* is ``host:port`` or several of them, separated by ``;``; without it the environment says. Other
    keyword arguments are the fields of ClientSettings.
    """

    def __init__(
        self, name_servers: str | Sequence[str] | None = None, settings: ClientSettings | None = None, **changes: object
    ) -> None:
        given = name_servers_from_environment() if name_servers is None else name_servers
        if not given:
            raise NoNameServerError(NO_NAME_SERVER)
        addresses = parse_addresses(given if isinstance(given, str) else ";".join(given))
        self.instance = ClientInstance(addresses, changed(settings or ClientSettings(), changes))
        super().__init__(self.instance)

    @property
    def client_id(self) -> str:
        """The name by which brokers and other members of a group know this client."""
        return self.instance.client_id

    async def start(self) -> None:
        """Begin the background work. Nothing is connected before it is needed."""
        await self.instance.start()

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

    def producer(self, group: str, settings: ProducerSettings | None = None, **changes: object) -> Producer:
        """Return a producer, to be used inside ``async with``. Keyword arguments are the fields of ProducerSettings."""
        check_group(group, DEFAULT_PRODUCER_GROUP)
        return Producer(self.instance, group, changed(settings or ProducerSettings(), changes))

    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        handler: Handler | None = None,
        batch_handler: BatchHandler | None = None,
        settings: ConsumerSettings | None = None,
        **changes: object,
    ) -> Consumer:
        """Return a consumer, to be used inside ``async with``. Keyword arguments are the fields of ConsumerSettings.

        *topics* is a topic, several, or topics with expressions: ``{"Orders": "new || paid"}``. *handler* is called for
        each message, *batch_handler* for up to ``batch_size`` messages of a queue; with neither, iterate.
        """
        check_group(group, DEFAULT_CONSUMER_GROUP)
        if handler is not None and batch_handler is not None:
            raise ConfigError("give handler or batch_handler, not both")
        for given in (handler, batch_handler):
            if given is not None:
                check_async(given)
        if handler is not None:
            batch_handler = as_batch_handler(handler)
        wanted = changed(settings or ConsumerSettings(), changes)
        return Consumer(self.instance, group, topics_with_expressions(topics), wanted, batch_handler)
