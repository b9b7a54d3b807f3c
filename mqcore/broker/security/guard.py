"""The broker's guard: it holds the tables, follows the files while the broker runs, and is asked about each request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from mqcore.broker.ports import Channel, Clock
from mqcore.broker.security.accounts import shown
from mqcore.broker.security.acl_files import AclFiles, Stamps, load_yaml
from mqcore.broker.security.certificates import common_name
from mqcore.broker.security.changes import (
    AccountChange,
    Content,
    with_account,
    with_next_version,
    with_white_addresses,
    without_account,
)
from mqcore.broker.security.grants import encode_grant, encode_table
from mqcore.broker.security.guessing import Guessers
from mqcore.broker.security.permissions import ADMIN_CODES
from mqcore.broker.security.refusals import Refusals
from mqcore.broker.security.signature import ACCESS_KEY
from mqcore.broker.security.tables import ACCOUNTS, WHITE_ADDRESSES, AclTables, make_tables
from mqcore.broker.security.validator import AclError, Principal, Refusal, names_account, validate
from mqcore.errors import ConfigError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.topic_config import DataVersion

logger = logging.getLogger(__name__)

WATCH_INTERVAL_S: Final = 1.0
"""RocketMQ looks each five seconds."""

GUESSES: Final = frozenset({Refusal.SIGNATURE, Refusal.UNKNOWN_KEY})


class AclGuard:
    """ports.Guard by RocketMQ's files."""

    def __init__(
        self,
        files: AclFiles,
        clock: Clock,
        admin_codes: Collection[int] = ADMIN_CODES,
        *,
        trusts_certificates: bool = False,
    ) -> None:
        """*admin_codes* are the requests that only accounts with ``admin`` may make.

        With *trusts_certificates* the name in a checked certificate is that of the account of requests without a key.
        """
        self.files = files
        self._trusts_certificates = trusts_certificates
        self._admin_codes = admin_codes
        self.tables = AclTables()
        self.version = 0
        """Of the tables; the first that are read are 1."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when other tables hold."""
        self.on_admitted: Callable[[int, bytes], None] = lambda channel_id, grant: None
        """Called with a connection and an ACL_GRANT when it turns out who its requests are from."""
        self.refusals = Refusals(clock)
        self.guessers = Guessers(clock)
        self._clock = clock
        self._changing = asyncio.Lock()
        self._start_version = DataVersion(clock(), 0)
        self._stamps: Stamps = {}
        self._numbers: dict[str, int] = {}
        self._granted: dict[int, tuple[str | None, bytes]] = {}
        """Whose good request has come by a connection last, and the grant that it was given."""

    def load(self) -> None:
        """Read all files, for the start. Raises ConfigError with the file and what is wrong in it."""
        load_yaml()
        try:
            self.files.prepare()
            self._use(*self._read())
        except OSError as error:
            raise ConfigError(f"aclEnable: got true, and cannot read who may do what: {error}") from error
        self._log("read")

    def _read(self) -> tuple[Stamps, AclTables]:
        # Stamps first: a file that changes while it is read is read again.
        stamps = self.files.stamps()
        return stamps, make_tables(self.files.read_all(), self._clock())

    def _use(self, stamps: Stamps, tables: AclTables) -> None:
        self._stamps, self.tables = stamps, tables
        self._numbers = {key: number for number, key in enumerate(tables.accounts)}
        self.version += 1
        self.on_change()

    def encoded(self) -> bytes:
        """The accounts for send workers, with their secrets."""
        return encode_table(self.tables, self.version)

    def _log(self, what: str) -> None:
        logger.info(
            "access control %s accounts=%d files=%d white_addresses=%d",
            what, len(self.tables.accounts), len(self._stamps), len(self.tables.white_addresses),
        )  # fmt: skip

    async def watch(self) -> None:
        """Go by files that were changed, added or removed. One that is no good leaves everything as it was."""
        async with self._changing:
            await self._watch()

    async def _watch(self) -> None:
        stamps = await asyncio.to_thread(self.files.stamps)
        if stamps == self._stamps:
            return
        try:
            self._use(*await asyncio.to_thread(self._read))
        except (ConfigError, OSError) as error:
            self._stamps = stamps
            logger.error("access control stays as it was, since its files have changed to what cannot stand: %s", error)
            return
        self._log("read again")

    async def admit(self, channel: Channel, request: RemotingCommand) -> None:
        """Return if *request* may be served. Raises AclError, late for who guesses; his connection may be closed."""
        address = channel.remote_ip
        if self._must_leave(channel, request):
            self.refusals.turned_away += 1
            channel.close()
            raise AclError(Refusal.SIGNATURE, "Too many wrong signatures")
        try:
            certified = self._certified(channel)
            self._grant(channel, validate(self.tables, request, address, self._admin_codes, certified))
        except AclError as error:
            self.refusals.note(error, address, request.code)
            if error.why in GUESSES:
                await self._slow_down(address)
            raise

    def _certified(self, channel: Channel) -> str:
        return common_name(channel.certified_name) if self._trusts_certificates else ""

    def _grant(self, channel: Channel, principal: Principal) -> None:
        key = principal.account.access_key if principal.account is not None else None
        given = key, encode_grant(self._numbers, self.version, principal)
        # One that is gone already has been forgotten.
        if channel.is_open and self._granted.get(channel.channel_id) != given:
            self._granted[channel.channel_id] = given
            self.on_admitted(channel.channel_id, given[1])

    def _must_leave(self, channel: Channel, request: RemotingCommand) -> bool:
        if not self.guessers.must_leave(channel.remote_ip) or self.tables.is_white(channel.remote_ip):
            return False
        if not names_account(request) and self._certified(channel):
            return False
        # Who knows the secret of one account may still guess those of others.
        key, _ = self._granted.get(channel.channel_id, (None, b""))
        return key is None or key != (request.ext_fields or {}).get(ACCESS_KEY)

    def forget(self, channel: Channel) -> None:
        """The connection is gone."""
        self._granted.pop(channel.channel_id, None)

    async def _slow_down(self, address: str) -> None:
        delay_s = self.guessers.note(address)
        if not delay_s:
            return
        waiting = self.guessers.wait_begins(address)
        try:
            await asyncio.sleep(delay_s)
        finally:
            self.guessers.wait_ends(waiting)

    # What operators ask for.

    @property
    def versions(self) -> Mapping[str, DataVersion]:
        """How often and when each file was changed, by path."""
        return self.tables.versions

    async def listing(self) -> tuple[list[str], list[dict[str, Any]]]:
        """White addresses and accounts as they stand in the files, secrets hidden. Raises MQError or OSError."""
        contents = await asyncio.to_thread(self.files.read_all)
        tables = make_tables(contents)
        # In the files' order, of a key that stands twice the one that counts.
        entries = [entry for content in contents.values() if content for entry in content.get(ACCOUNTS) or ()]
        accounts = {account["accessKey"]: account for account in reversed([shown(entry) for entry in entries])}
        white = [text for content in contents.values() if content for text in content.get(WHITE_ADDRESSES) or ()]
        return [str(text) for text in white if text is not None], [accounts[key] for key in tables.accounts]

    @property
    def default_version(self) -> DataVersion:
        """That of the default file."""
        return self.tables.versions.get(str(self.files.default), self._start_version)

    async def update_account(self, change: AccountChange) -> None:
        """Make an account in the default file, or change it where it stands. Raises MQError or OSError."""
        change.check()
        path = self.tables.files.get(change.access_key, str(self.files.default))
        await self._change(path, lambda content: with_account(content, change))

    async def delete_account(self, access_key: str) -> bool:
        """Take an account out of its file; False if there is none. Raises as ``update_account``."""
        path = self.tables.files.get(access_key)
        if path is not None:
            await self._change(path, lambda content: without_account(content, access_key))
        return path is not None

    async def update_white_addresses(self, addresses: list[str], path: str) -> bool:
        """Let these in without a key by the file *path*, or the default one; False if it is none of the files.

        Nothing else is written to, where RocketMQ takes any path that begins with its home.
        """
        path = path or str(self.files.default)
        if path not in map(str, await asyncio.to_thread(self.files.paths)):
            return False
        await self._change(path, lambda content: with_white_addresses(content, addresses))
        return True

    async def _change(self, path: str, edit: Callable[[Any], Content]) -> None:
        async with self._changing:
            self._use(*await asyncio.to_thread(self._edit, path, edit))
        self._log("changed")

    def _edit(self, path: str, edit: Callable[[Any], Content]) -> tuple[Stamps, AclTables]:
        contents = self.files.read_all()
        contents[path] = with_next_version(edit(contents.get(path)), self._clock())
        make_tables(contents)  # before anything is written
        self.files.write(path, contents[path])
        return self._read()

    def figures(self) -> dict[str, str]:
        """Rows of the runtime table."""
        return {**self.refusals.figures(), "aclAccounts": str(len(self.tables.accounts))}
