"""etcd (3.4 or later) as the engine of a group, through its JSON gateway.

One key has the group's state and changes by comparison of its revision alone. Leases say who is there: they decide when
somebody stands for election, and never whether an acknowledgement counts. etcd's locks are not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Final

from mqcore.address import Address
from mqcore.errors import EngineError, ProtocolError

from .coordinator import Outcome
from .effects import SwapState
from .group_keys import STATE, Change, Listing
from .group_state import GroupState
from .http_json import HttpJson

UNAUTHENTICATED: Final = 16
CALL_TIMEOUT_S: Final = 2.0
BROKEN: Final = (OSError, EOFError, ProtocolError, TimeoutError)


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _after(prefix: bytes) -> bytes:
    """Return the end of the range of keys that begin with *prefix*."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class EtcdEngine:
    """The keys below ``/mqcore/1/{cluster}/{broker_name}/``. Several endpoints are tried in turn."""

    def __init__(
        self,
        endpoints: Sequence[Address],
        cluster: str,
        broker_name: str,
        *,
        context: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self._prefix = f"/mqcore/1/{cluster}/{broker_name}/".encode()
        self._connections = [HttpJson(endpoint, context) for endpoint in endpoints]
        self._context = context
        self._user, self._password = user, password
        self._timeout_s = timeout_s
        self._headers: dict[str, str] = {}
        self._turn = asyncio.Lock()
        self._lease = 0
        self._announced: bytes | None = None

    # --------------------------------------------------------------------------------------------------- what is asked

    async def read(self) -> tuple[int, GroupState | None]:
        """Return the state and its revision, 0 and None if there is none, as of a moment within this call.

        Raises EngineError if no endpoint answers, ProtocolError if the key has what no broker has written.
        """
        answer = await self._call("/v3/kv/range", {"key": self._key(STATE)})
        return _state_in(answer)

    async def read_all(self) -> Listing:
        """Return all keys of the group as of one moment within this call. Raises EngineError."""
        answer = await self._call(
            "/v3/kv/range", {"key": _text(self._prefix), "range_end": _text(_after(self._prefix))}
        )
        keys = tuple(self._put_of(pair) for pair in answer.get("kvs", ()))
        return Listing(str(answer["header"]["cluster_id"]), _revision(answer), keys)

    async def create(self, name: str, value: bytes) -> bool:
        """Put a key that is not there yet; False if it is. Raises EngineError: it may be there then, or not."""
        key = self._key(name)
        body = {
            "compare": [{"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
            "success": [{"request_put": {"key": key, "value": _text(value)}}],
        }
        return bool((await self._call("/v3/kv/txn", body)).get("succeeded"))

    async def put(self, name: str, value: bytes) -> None:
        """Put a key. Raises EngineError: it may be there then, or not."""
        await self._call("/v3/kv/put", {"key": self._key(name), "value": _text(value)})

    async def swap(self, swap: SwapState) -> tuple[Outcome, int, GroupState | None]:
        """Put a state in place of the one that is expected. Never raises EngineError: what is not known is UNKNOWN."""
        key = self._key(STATE)
        body = {
            "compare": [{"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(swap.expected)}],
            "success": [{"request_put": {"key": key, "value": _text(swap.state.encode())}}],
            "failure": [{"request_range": {"key": key}}],
        }
        try:
            answer = await self._call("/v3/kv/txn", body)
        except EngineError:
            return Outcome.UNKNOWN, 0, None
        if answer.get("succeeded"):
            return Outcome.DONE, _revision(answer), swap.state
        return Outcome.REFUSED, *_state_in(answer["responses"][0]["response_range"])

    async def announce(self, name: str, value: bytes, lease_s: int) -> bool:
        """Say that *name* is there, for *lease_s* seconds from now on; False if another process says so.

        The first call of a process takes the key, later ones renew it. Raises EngineError.
        """
        if self._lease:
            answer = await self._call("/v3/lease/keepalive", {"ID": str(self._lease)})
            if int(answer.get("result", {}).get("TTL", 0)) <= 0:
                self._lease, self._announced = 0, None
        if not self._lease:
            return await self._take_name(name, value, lease_s)
        if value != self._announced:
            put = {"key": self._key(name), "value": _text(value), "lease": str(self._lease)}
            await self._call("/v3/kv/put", put)
            self._announced = value
        return True

    async def _take_name(self, name: str, value: bytes, lease_s: int) -> bool:
        lease = int((await self._call("/v3/lease/grant", {"TTL": str(lease_s)}))["ID"])
        key = self._key(name)
        body = {
            "compare": [{"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
            "success": [{"request_put": {"key": key, "value": _text(value), "lease": str(lease)}}],
        }
        if not (await self._call("/v3/kv/txn", body)).get("succeeded"):
            with contextlib.suppress(EngineError):
                await self._call("/v3/lease/revoke", {"ID": str(lease)})
            return False
        self._lease, self._announced = lease, value
        return True

    async def leave(self) -> None:
        """Take the announcement back, if there is one. Raises EngineError: it ends by itself then."""
        lease, self._lease = self._lease, 0
        if lease:
            await self._call("/v3/lease/revoke", {"ID": str(lease)})

    async def watch(self, revision: int) -> AsyncIterator[Change]:
        """Yield the changes of the group's keys behind *revision*, in their order, without end.

        Raises EngineError when the connection ends, or the engine has forgotten that far back: read, and watch anew.
        """
        request = {
            "create_request": {
                "key": _text(self._prefix),
                "range_end": _text(_after(self._prefix)),
                "start_revision": str(revision + 1),
            }
        }
        connection = await self._connected_for_watching()
        try:
            async for line in connection.stream("/v3/watch", request, self._headers):
                result = line.get("result")
                if result is None or result.get("canceled"):
                    raise EngineError(f"{connection.address}: the watch has ended: {line}")
                for event in result.get("events", ()):
                    yield self._change(event)
        except BROKEN as error:
            raise EngineError(f"{connection.address}: the watch has ended: {error!r}") from error
        finally:
            connection.close()
        raise EngineError(f"{connection.address}: the watch has ended")

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()

    # --------------------------------------------------------------------------------------------------------- calls

    def _key(self, name: str) -> str:
        return _text(self._prefix + name.encode())

    def _change(self, event: dict[str, Any]) -> Change:
        put = self._put_of(event["kv"])
        return replace(put, value=None) if event.get("type") == "DELETE" else put

    def _put_of(self, pair: dict[str, Any]) -> Change:
        name = b64decode(pair["key"]).removeprefix(self._prefix).decode(errors="replace")
        return Change(name, b64decode(pair.get("value", "")), int(pair["mod_revision"]))

    async def _connected_for_watching(self) -> HttpJson:
        await self._sign_in()
        for known in self._connections:
            connection = HttpJson(known.address, self._context)
            with contextlib.suppress(*BROKEN):
                async with asyncio.timeout(self._timeout_s):
                    await connection.open()
                return connection
        raise self._unreachable("no connection")

    async def _call(self, path: str, body: object) -> dict[str, Any]:
        """Return the answer. Raises EngineError; whether anything was done is not known then."""
        async with self._turn:
            await self._sign_in()
            status, answer = await self._post(path, body)
            if status != 200 and answer.get("code") == UNAUTHENTICATED and self._user:
                # Tokens end. What was refused for that was not done.
                self._headers = {}
                await self._sign_in()
                status, answer = await self._post(path, body)
        if status != 200 or "error" in answer:
            raise EngineError(f"etcd: {path} was answered with {status}: {answer.get('error') or answer}")
        return answer

    async def _sign_in(self) -> None:
        if not self._user or self._headers:
            return
        body = {"name": self._user, "password": self._password}
        status, answer = await self._post("/v3/auth/authenticate", body)
        if status != 200 or "token" not in answer:
            raise EngineError(f"etcd: user {self._user!r} was refused: {answer.get('error') or status}")
        self._headers = {"Authorization": answer["token"]}

    async def _post(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        """Ask the endpoints in turn, the next one only where nothing has left for the one before it."""
        failure: BaseException | None = None
        for _ in self._connections:
            connection = self._connections[0]
            was_open = connection.is_open
            try:
                async with asyncio.timeout(self._timeout_s):
                    if not was_open:
                        await connection.open()
            except BROKEN as error:
                failure = error
                self._connections.append(self._connections.pop(0))
                continue
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await connection.post(path, body, self._headers)
            except BROKEN as error:
                connection.close()
                self._connections.append(self._connections.pop(0))
                raise EngineError(f"etcd: {connection.address} has not answered {path}: {error!r}") from error
        raise self._unreachable(repr(failure)) from failure

    def _unreachable(self, why: str) -> EngineError:
        addresses = ", ".join(str(connection.address) for connection in self._connections)
        return EngineError(f"etcd: none of {addresses} can be reached: {why}")


def _revision(answer: dict[str, Any]) -> int:
    return int(answer["header"]["revision"])


def _state_in(answer: dict[str, Any]) -> tuple[int, GroupState | None]:
    pairs = answer.get("kvs", ())
    if not pairs:
        return 0, None
    return int(pairs[0]["mod_revision"]), GroupState.decode(b64decode(pairs[0].get("value", "")))
