"""``mqcore ha``: how brokers' logs are copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from mqcore.admin.options import output_option
from mqcore.admin.output import show_records
from mqcore.admin.running import Common, PartialError, fail, run_admin
from mqcore.client.admin import Admin
from mqcore.client.admin.base import BrokerPlace, answers_of
from mqcore.errors import MQError

COLUMNS = {
    "broker": "BROKER",
    "brokerId": "ID",
    "role": "ROLE",
    "end": "END",
    "peer": "PEER",
    "state": "STATE",
    "acked": "ACKED",
    "behindBytes": "BEHIND BYTES",
    "behindMs": "BEHIND MS",
}


@click.group()
def ha() -> None:
    """Look at replicas."""


@ha.command("status")
@output_option
@click.pass_obj
def ha_status(common: Common, output: str) -> None:
    """Show every master's slaves and every slave's master: who copies, how far, and how far behind."""

    async def work(admin: Admin) -> list[tuple[BrokerPlace, Mapping[str, Any] | MQError]]:
        places = {place.address: place for place in await admin.brokers()}

        async def ask(address: str) -> Mapping[str, Any] | MQError:
            try:
                return await admin.ha_status(address)
            except MQError as error:
                return error

        return [(places[address], status) for address, status in (await answers_of(places, ask)).items()]

    found = run_admin(common, work)
    show_records([record for place, status in found for record in records_of(place, status)], output, COLUMNS)
    silent = [f"{place.address} ({status})" for place, status in found if isinstance(status, MQError)]
    if silent:
        fail(PartialError(f"no answer from {', '.join(silent)}"))


def records_of(place: BrokerPlace, status: Mapping[str, Any] | MQError) -> Iterator[dict[str, Any]]:
    """A line for each slave of a broker, one for a slave's master, and one at least."""
    if isinstance(status, MQError):
        return
    line = dict.fromkeys(COLUMNS) | {
        "broker": place.name,
        "brokerId": place.broker_id,
        "role": status.get("role", "MASTER" if status.get("master") else "SLAVE"),
        "end": status.get("masterCommitLogMaxOffset"),
    }
    lines = [
        line
        | {
            "peer": copy.get("addr"),
            "state": copy.get("state") or ("IN SYNC" if copy.get("inSync") else "BEHIND"),
            "acked": copy.get("slaveAckOffset"),
            "behindBytes": copy.get("diff"),
            "behindMs": copy.get("behindMs"),
        }
        for copy in status.get("haConnectionInfo") or ()
    ]
    client = status.get("haClientRuntimeInfo")
    if client and not status.get("master"):
        lines.append(
            line
            | {
                "peer": client.get("masterAddr"),
                "state": "COPYING" if client.get("activated") else status.get("refusal") or "NOT CONNECTED",
                "behindBytes": max(0, (client.get("masterFlushOffset") or 0) - (client.get("maxOffset") or 0)),
            }
        )
    yield from lines or [line]
