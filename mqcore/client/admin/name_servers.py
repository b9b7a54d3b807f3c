"""Name servers: their settings, and the values that they keep."""

from __future__ import annotations

from collections.abc import Mapping

from mqcore.client.admin.base import AdminCalls, Outcomes
from mqcore.client.errors import NotFoundError
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import BrokerError
from mqcore.java_properties import decode_properties, format_properties, parse_properties
from mqcore.protocol.bodies import KVTable
from mqcore.protocol.headers import decode_response


class NameServerCalls(AdminCalls):
    """What can be asked and changed of name servers. Changes go to all of them."""

    async def name_server_config(self) -> dict[str, dict[str, str]]:
        """Return the settings of each name server, by address."""
        found = {}
        for address in sorted(await self._hub.name_servers.all()):
            answer = await self._hub.api.call(address, RequestCode.GET_NAMESRV_CONFIG)
            found[address] = read_settings(answer.body)
        return found

    async def update_name_server_config(self, changes: Mapping[str, str]) -> Outcomes:
        """Change settings of all name servers."""
        body = format_properties(changes).encode()
        return await self._tell_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    async def get_kv(self, namespace: str, key: str) -> str:
        """Return a value that name servers keep; NotFoundError when there is none."""
        values = {"namespace": namespace, "key": key}
        code = RequestCode.GET_KV_CONFIG
        try:
            answer = await self._ask_name_server(code, values)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                raise NotFoundError(f"no value for {key} in namespace {namespace}") from error
            raise
        return str(decode_response(code, answer.ext_fields)["value"] or "")

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all values of *namespace*, sorted by key; NotFoundError when there is none."""
        try:
            answer = await self._ask_name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                raise NotFoundError(f"no values in namespace {namespace}") from error
            raise
        return dict(sorted(KVTable.decode(answer.body).table.items()))

    async def put_kv(self, namespace: str, key: str, value: str) -> Outcomes:
        """Set a value at all name servers."""
        values = {"namespace": namespace, "key": key, "value": value}
        return await self._tell_name_servers(RequestCode.PUT_KV_CONFIG, values)

    async def delete_kv(self, namespace: str, key: str) -> Outcomes:
        """Delete a value at all name servers; without effect where there is none."""
        return await self._tell_name_servers(RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key})


def read_settings(body: bytes) -> dict[str, str]:
    """Return the settings in an answer, sorted by name."""
    return dict(sorted(parse_properties(decode_properties(body), "settings").items()))
