"""What Java's producers and consumers have in common: where the name servers are, and who the client is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mqcore.client import Client
from mqcore.errors import ClientError


@dataclass(frozen=True, slots=True)
class SessionCredentials:
    """The keys of an account at brokers that check who asks."""

    access_key: str
    secret_key: str
    security_token: str | None = None


@dataclass(frozen=True, slots=True)
class AclClientRPCHook:
    """Given to a producer's or consumer's constructor: signs its requests."""

    session_credentials: SessionCredentials


class ClientConfig:
    """Base of Java's producers and consumers. Settings are read when ``start`` is called."""

    def __init__(self, rpc_hook: AclClientRPCHook | None = None) -> None:
        self._name_servers: str | None = None
        self._client_settings: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self._client: Client | None = None
        if rpc_hook is not None:
            keys = rpc_hook.session_credentials
            self._client_settings |= {
                "access_key": keys.access_key,
                "secret_key": keys.secret_key,
                "security_token": keys.security_token,
            }

    def set_namesrv_addr(self, address: str) -> None:
        """Set the name servers, ``host:port;host:port``. Without them the environment says (NAMESRV_ADDR)."""
        self._name_servers = address

    def get_namesrv_addr(self) -> str | None:
        return self._name_servers

    def set_instance_name(self, name: str) -> None:
        self._client_settings["instance_name"] = name

    def set_client_ip(self, address: str) -> None:
        self._client_settings["client_ip"] = address

    def set_unit_name(self, name: str) -> None:
        self._client_settings["unit_name"] = name

    def set_namespace(self, namespace: str) -> None:
        """Let topics and groups be those of *namespace*: brokers know them as ``namespace%name``."""
        self._client_settings["namespace"] = namespace

    def get_namespace(self) -> str:
        return str(self._client_settings.get("namespace", ""))

    def set_poll_name_server_interval(self, interval_ms: int) -> None:
        self._client_settings["route_refresh_interval_s"] = interval_ms / 1000

    def set_heartbeat_broker_interval(self, interval_ms: int) -> None:
        self._client_settings["heartbeat_interval_s"] = interval_ms / 1000

    def set_persist_consumer_offset_interval(self, interval_ms: int) -> None:
        self._client_settings["offset_commit_interval_s"] = interval_ms / 1000

    def set_mq_client_api_timeout(self, timeout_ms: int) -> None:
        self._client_settings["call_timeout_s"] = timeout_ms / 1000

    def get_client_id(self) -> str:
        """Return ``ip@instance``, known once ``start`` has been called."""
        return self._running_client().client_id

    def _open_client(self) -> Client:
        if self._client is not None:
            raise ClientError("The service state is not CREATE_JUST: start has been called before")
        self._client = Client(self._name_servers, **self._client_settings)
        self._client.start()
        return self._client

    def _running_client(self) -> Client:
        if self._client is None:
            raise ClientError("The service state is not OK, CREATE_JUST: call start first")
        return self._client

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
