"""Telling the name servers which topics this broker has, again and again, and saying good-bye.

Source: RocketMQ broker/BrokerController.java (registerBrokerAll), broker/out/BrokerOuterAPI.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mqcore import clock
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.ports import Caller, GroupControl
from mqcore.broker.topics import TopicConfigManager
from mqcore.codes import PermName, RemotingFlag, RequestCode, ResponseCode
from mqcore.errors import BrokerError, MQError, RemotingConnectError
from mqcore.protocol import headers
from mqcore.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.address_page import EVERY_S, AddressPage

logger = logging.getLogger(__name__)

FIRST_PERIODIC_S: Final = 10.0
UNREGISTER_TIMEOUT_S: Final = 3.0
QUERY_TIMEOUT_S: Final = 3.0
AGAIN_S: Final = 1.0
"""A name server that did not answer is told again so soon, then after twice that time, and so on up to the period."""


class Registration:
    """Keeps the name servers informed. Without name servers it does nothing."""

    def __init__(
        self,
        settings: LiveSettings,
        topics: TopicConfigManager,
        caller: Caller,
        address: str,
        ha_address: str,
        group: GroupControl | None = None,
    ) -> None:
        """*address* is what clients are to connect to, *ha_address* what slaves are."""
        self.address = address
        self.on_master: Callable[[str | None, str | None], None] = lambda address, ha_address: None
        """Called with the addresses of the master that the first name server knows, for a broker that is a slave."""
        self._settings = settings
        self._topics = topics
        self._caller = caller
        self._ha_address = ha_address
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self._soon: asyncio.Task[None] | None = None
        page = settings.current.namesrv_page
        self._page = AddressPage(page) if page else None
        self._page_read_s: float | None = None
        self._told: dict[str, int] = {}
        """By name server: up to which change of the topics it has acknowledged all."""
        self._missed: set[str] = set()
        """Name servers that did not acknowledge the last registration."""
        self._again: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def name_servers(self) -> list[str]:
        if self._page is not None:
            return list(self._page.addresses)
        return [str(address) for address in self._settings.current.namesrv_addresses]

    @property
    def is_known(self) -> bool:
        """Whether a name server has acknowledged what was registered last."""
        return bool(self._told)

    async def register_all(self, *, check_order: bool, oneway: bool, force: bool) -> None:
        """Register every topic with every name server; failures are logged.

        *check_order* takes the order topics from the first answer. Without *force* only if a name server says that it
        knows another version.
        """
        await self._read_page()
        if force or await self._is_needed():
            await self._register((), check_order=check_order, oneway=oneway)

    async def register_topics(self, *configs: TopicConfig) -> None:
        """Register topics that were created or changed, with the table's new version.

        A name server takes topics only with a version that it does not have. One that lacks another change too is told
        all topics, or it would believe that it knew that change. RocketMQ's broker tells it these alone, and a topic
        that is made by its first message meanwhile has no route until something else changes.
        """
        await self._register(configs, check_order=True, oneway=False)

    def register_soon(self) -> None:
        """Register every topic in the background, once for all calls that come before it begins."""
        if self._soon is None:
            self._soon = self._start(self._register_soon())

    async def _register_soon(self) -> None:
        await asyncio.sleep(0)
        self._soon = None
        # In a failover group this may say who leads from now on: whether it was heard is to be known.
        await self.register_all(check_order=False, oneway=self._group is None, force=True)

    async def run(self) -> None:
        """Register periodically until cancelled."""
        await asyncio.sleep(FIRST_PERIODIC_S)
        while True:
            force = self._settings.broker.force_register
            try:
                await self.register_all(check_order=True, oneway=False, force=force)
            except Exception:  # the top loop of this task: without it the name servers would forget the broker
                logger.exception("registration failed, trying again in the next period")
            await asyncio.sleep(self._settings.broker.register_name_server_period_ms / 1000)

    async def unregister_all(self) -> None:
        """Tell every name server that the broker goes away; failures are logged."""
        request = RemotingCommand(
            RequestCode.UNREGISTER_BROKER,
            ext_fields=headers.encode_request(RequestCode.UNREGISTER_BROKER, **self._identity()),
        )
        await self._call_all(request, UNREGISTER_TIMEOUT_S)

    async def close(self) -> None:
        """Stop what runs in the background, and begin nothing more there."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read_page(self) -> None:
        """Read the page that names the name servers, if there is one and it is time; a failure is logged."""
        now_s = clock.monotonic_s()
        is_new = self._page_read_s is not None and now_s < self._page_read_s + EVERY_S
        if self._page is None or (is_new and self._page.addresses):
            return
        self._page_read_s = now_s
        try:
            await self._page.read()
        except RemotingConnectError as error:
            logger.warning("name servers are not known: %s", error)

    async def _is_needed(self) -> bool:
        request = RemotingCommand(
            RequestCode.QUERY_DATA_VERSION,
            ext_fields=headers.encode_request(RequestCode.QUERY_DATA_VERSION, **self._identity()),
            body=self._version().encode(),
        )
        replies = await self._call_all(request, QUERY_TIMEOUT_S)
        return any(
            reply is None or headers.decode_response(RequestCode.QUERY_DATA_VERSION, reply.ext_fields)["changed"]
            for reply in replies
        )

    async def _register(self, changed: Sequence[TopicConfig], *, check_order: bool, oneway: bool) -> None:
        """Register *changed* where they are all that is not known yet, and every topic elsewhere."""
        counter = self._topics.version.counter
        known = {address: self._told.pop(address, None) for address in self.name_servers}
        await self._register_with(known, changed, counter, check_order=check_order, oneway=oneway)

    async def _register_with(
        self,
        known: Mapping[str, int | None],
        changed: Sequence[TopicConfig],
        counter: int,
        *,
        check_order: bool,
        oneway: bool,
    ) -> None:
        needs_all = [address for address in known if not changed or known[address] != counter - len(changed)]
        all_topics = self._register_request(self._of_now(self._topics.wrapper)) if needs_all else None
        few = self._register_request(self._only(changed)) if len(needs_all) < len(known) else None
        requests = {address: all_topics if address in needs_all else few for address in known}
        calls = [
            self._register_at(address, request, counter, oneway=oneway)
            for address, request in requests.items()
            if request is not None
        ]
        replies = [reply for reply in await asyncio.gather(*calls) if reply is not None]
        await self._take_answers(replies, check_order=check_order)

    def _only(self, configs: Sequence[TopicConfig]) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper({config.topic_name: config for config in configs}, self._version())

    def _version(self) -> DataVersion:
        """Return the topics' version, in a failover group with the mastership that it is of."""
        version = self._topics.version
        return version if self._group is None else replace(version, state_version=self._group.epoch)

    def _of_now(self, wrapper: TopicConfigSerializeWrapper) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(wrapper.topic_config_table, self._version())

    async def _register_at(
        self, address: str, request: RemotingCommand, counter: int, *, oneway: bool
    ) -> RemotingCommand | None:
        timeout_s = self._settings.broker.register_broker_timeout_ms / 1000
        if oneway:
            request = replace(request, flag=request.flag | int(RemotingFlag.ONEWAY))
            if not await self._send(address, request, timeout_s):
                self._miss(address)
            return None
        reply = await self._call(address, request, timeout_s)
        if reply is None:
            self._miss(address)
        else:
            self._missed.discard(address)
            self._told[address] = counter
        return reply

    def _miss(self, address: str) -> None:
        self._missed.add(address)
        if not self._is_closed and (self._again is None or self._again.done()):
            self._again = self._start(self._register_again())

    async def _register_again(self) -> None:
        """Register where nobody has answered, until they do: who asks there does not find this broker.

        RocketMQ's broker leaves it to the next period: a master that was elected while its name servers could not be
        reached would be unknown for half a minute after they can.
        """
        pause_s = AGAIN_S
        while pause_s < self._settings.broker.register_name_server_period_ms / 1000:
            await asyncio.sleep(pause_s)
            pause_s *= 2
            missed = self._missed.intersection(self.name_servers)
            if not missed:
                return
            await self._register_with(
                dict.fromkeys(missed), (), self._topics.version.counter, check_order=False, oneway=False
            )

    async def _take_answers(self, replies: Sequence[RemotingCommand], *, check_order: bool) -> None:
        if replies and self.broker_id > 0:
            answer = headers.decode_response(RequestCode.REGISTER_BROKER, replies[0].ext_fields)
            self.on_master(answer["master_addr"], answer["ha_server_addr"])
        if check_order and replies and replies[0].body:
            await self._topics.update_order(KVTable.decode(replies[0].body).table)

    @property
    def broker_id(self) -> int:
        """The id by which name servers know this broker just now: 0 for a master."""
        if self._group is None:
            return self._settings.broker.broker_id
        return self._group.registered_id

    def _identity(self) -> dict[str, Any]:
        """The fields by which a name server knows this broker."""
        broker = self._settings.broker
        return {
            "broker_name": broker.broker_name,
            "broker_addr": self.address,
            "cluster_name": broker.broker_cluster_name,
            "broker_id": self.broker_id,
        }

    def _as_published(self, wrapper: TopicConfigSerializeWrapper) -> TopicConfigSerializeWrapper:
        """A broker that may not both be read and written shows its own permission for every topic."""
        perm = self._settings.broker.broker_permission
        if PermName.is_readable(perm) and PermName.is_writeable(perm):
            return wrapper
        topics = {name: replace(config, perm=perm) for name, config in wrapper.topic_config_table.items()}
        return TopicConfigSerializeWrapper(topics, wrapper.data_version)

    def _register_request(self, wrapper: TopicConfigSerializeWrapper) -> RemotingCommand:
        broker = self._settings.broker
        body = RegisterBrokerBody(self._as_published(wrapper)).encode_body(compressed=broker.compressed_register)
        return RemotingCommand(
            RequestCode.REGISTER_BROKER,
            ext_fields=headers.encode_request(
                RequestCode.REGISTER_BROKER,
                **self._identity(),
                ha_server_addr=self._ha_address,
                compressed=broker.compressed_register,
                body_crc32=body_crc32(body),
            ),
            body=body,
        )

    async def _call_all(self, request: RemotingCommand, timeout_s: float) -> list[RemotingCommand | None]:
        """Send *request* to every name server; return the answers in their order, None for a failure."""
        return await asyncio.gather(*(self._call(address, request, timeout_s) for address in self.name_servers))

    async def _call(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand | None:
        try:
            reply = await self._caller.invoke(address, replace(request), timeout_s)
            if reply.code != ResponseCode.SUCCESS:
                raise BrokerError(reply.code, reply.remark or "", address)
        except MQError as error:
            logger.warning("name server failed address=%s code=%d error=%s", address, request.code, error)
            return None
        return reply

    async def _send(self, address: str, request: RemotingCommand, timeout_s: float) -> bool:
        try:
            await self._caller.invoke_oneway(address, replace(request), timeout_s)
        except MQError as error:
            logger.warning("name server failed address=%s code=%d error=%s", address, request.code, error)
            return False
        return True
