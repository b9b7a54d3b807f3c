"""How logs are copied between brokers that do not say so: what can be known of RocketMQ's brokers before release 5.

Their tables say how far each log goes, and who is whose slave the name server says; so one is behind by what its master
has more. What a master has of its slaves' acknowledgements, it does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqcore.client.admin import Admin
from mqcore.client.admin.base import BrokerPlace
from mqcore.client.admin.group_report import ask
from mqcore.errors import MQError

NOT_TOLD: Final = "NOT TOLD"
MASTER_ID: Final = 0


@dataclass(frozen=True, slots=True)
class UntoldBroker:
    """A broker that does not know the question, and what its tables say instead; None for what they do not."""

    address: str
    name: str
    broker_id: int | None
    role: str | None
    end: int | None


async def look_at_tables(admin: Admin, address: str, place: BrokerPlace | None) -> UntoldBroker | MQError:
    """Ask the broker at *address* for its tables, or return why it does not give them."""
    runtime = await ask(admin.broker_runtime, address)
    if isinstance(runtime, MQError):
        return runtime
    settings = await ask(admin.broker_config, address)  # which access control may keep from us
    said = {} if isinstance(settings, MQError) else settings
    end, broker_id = runtime.get("commitLogMaxOffset", ""), said.get("brokerId", "")
    return UntoldBroker(
        address,
        place.name if place is not None else said.get("brokerName", address),
        place.broker_id if place is not None else int(broker_id) if broker_id.isdecimal() else None,
        said.get("brokerRole"),
        int(end) if end.isdecimal() else None,
    )


def untold_records(brokers: Iterable[UntoldBroker], columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A line for each of *brokers*: a slave's with how much its master has more."""
    found = list(brokers)
    masters = {broker.name: broker for broker in found if broker.broker_id == MASTER_ID}
    for broker in found:
        master = masters.get(broker.name) if broker.broker_id != MASTER_ID else None
        ends = None if master is None or master.end is None or broker.end is None else (master.end, broker.end)
        yield dict.fromkeys(columns) | {
            "broker": broker.name,
            "brokerId": broker.broker_id,
            "role": broker.role,
            "end": broker.end,
            "peer": None if master is None else master.address,
            "state": NOT_TOLD,
            "behindBytes": None if ends is None else max(0, ends[0] - ends[1]),
        }


def in_words(brokers: Iterable[UntoldBroker]) -> Iterator[str]:
    """Say of which brokers the lines are less than one may think."""
    names = ", ".join(f"{broker.name} ({broker.address})" for broker in brokers)
    if names:
        yield (
            f"{names}: no broker of mqcore, nor of RocketMQ 5: it does not say how its log is copied (request 907 is "
            "not known there). Shown is what its tables say; a slave is behind by what its master's log has more"
        )
