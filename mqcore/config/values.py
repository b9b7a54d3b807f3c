"""``SettingValues``: what a program goes by, group by group, and how one process hands it to another.

Those who only go by values, as workers do, take this and not ``Settings``, which knows the rows that they come from: to
import the rows takes as long as to start the interpreter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from mqcore.address import FAST_PORT_DISTANCE, HA_PORT_DISTANCE, Address, host_and_port, page_of, parse_addresses
from mqcore.config.groups import (
    BrokerSettings,
    FailoverSettings,
    MqcoreSettings,
    NamesrvSettings,
    ServerSettings,
    StoreSettings,
    TlsSettings,
)
from mqcore.errors import ConfigError

CLASSES: Final[Mapping[str, type[Any]]] = {
    "broker": BrokerSettings,
    "store": StoreSettings,
    "server": ServerSettings,
    "mqcore": MqcoreSettings,
    "namesrv": NamesrvSettings,
    "tls": TlsSettings,
    "failover": FailoverSettings,
}
"""The attribute of each group of values, and its class."""


@dataclass(frozen=True, slots=True)
class SettingValues:
    """The values of all groups; those of groups that the program does not know are defaults."""

    broker: BrokerSettings
    store: StoreSettings
    server: ServerSettings
    mqcore: MqcoreSettings
    namesrv: NamesrvSettings
    tls: TlsSettings
    failover: FailoverSettings

    # What several settings mean together.

    @property
    def namesrv_addresses(self) -> tuple[Address, ...]:
        return parse_addresses(self.broker.namesrv_addr)

    @property
    def namesrv_page(self) -> str:
        """The page that names the name servers, where they are not given; empty where a broker has its own."""
        broker = self.broker
        if broker.namesrv_addr or not broker.fetch_namesrv_addr_by_address_server:
            return ""
        return page_of(broker.rmq_address_server_domain, broker.rmq_address_server_sub_group)

    @property
    def fast_listen_port(self) -> int:
        """The VIP port, two below the listen port; 0 (any free port) when that is 0."""
        return max(self.server.listen_port - FAST_PORT_DISTANCE, 0)

    @property
    def ha_listen_port(self) -> int:
        """The port for slaves, one above the listen port; 0 (any free port) when that is 0."""
        return self.server.listen_port + HA_PORT_DISTANCE if self.server.listen_port else 0

    @property
    def broker_address(self) -> str:
        """What the broker registers, and what clients connect to."""
        return host_and_port(self.broker.broker_ip1, self.server.listen_port)

    @property
    def ha_address(self) -> str:
        """What the broker registers for its slaves."""
        return host_and_port(self.broker.broker_ip2, self.ha_listen_port)

    # Between processes.

    def to_json(self) -> str:
        """Text that ``from_json`` in another process turns into the same values."""
        return json.dumps({group: getattr(self, group)._asdict() for group in CLASSES})

    @staticmethod
    def from_json(text: str) -> SettingValues:
        """Values from the text of ``to_json``. Raises ConfigError for any other text."""
        try:
            loaded = json.loads(text)
            return SettingValues(**{group: _read(loaded[group], kind) for group, kind in CLASSES.items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"settings in JSON: got {error!r}, wanted the text of to_json") from error


def _read(members: Mapping[str, Any], kind: type[Any]) -> Any:
    """The values of one group: words are members of their enumerations again, all others are there as they are."""
    types = kind.__annotations__
    return kind(
        **{name: types[name](value) if issubclass(types[name], Enum) else value for name, value in members.items()}
    )
