"""``mqcore ha``: how brokers' logs are copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from mqcore.admin.options import output_option
from mqcore.admin.output import show_records
from mqcore.admin.running import Common, PartialError, fail, run_admin
from mqcore.client.admin import Admin
from mqcore.client.admin.base import BrokerPlace, answers_of
from mqcore.errors import MQError
from mqcore.protocol.ha_bodies import HARuntimeInfo

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
    "bytesPerSecond": "BYTES/S",
}


@click.group()
def ha() -> None:
    """Look at replicas."""


@ha.command("status")
@output_option
@click.pass_obj
def ha_status(common: Common, output: str) -> None:
    """Show every master's slaves and every slave's master: who copies, how far, and how far behind."""

    async def work(admin: Admin) -> list[tuple[BrokerPlace, HARuntimeInfo | MQError]]:
        places = {place.address: place for place in await admin.brokers()}

        async def ask(address: str) -> HARuntimeInfo | MQError:
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


def records_of(place: BrokerPlace, status: HARuntimeInfo | MQError) -> Iterator[dict[str, Any]]:
    """A line for each slave of a broker, one for a slave's master, and one at least."""
    if isinstance(status, MQError):
        return
    line = dict.fromkeys(COLUMNS) | {
        "broker": place.name,
        "brokerId": place.broker_id,
        "role": status.role or ("MASTER" if status.master else "SLAVE"),
        "end": status.master_commit_log_max_offset,
    }
    lines = [
        line
        | {
            "peer": copy.addr,
            "state": copy.state or ("IN SYNC" if copy.in_sync else "BEHIND"),
            "acked": copy.slave_ack_offset,
            "behindBytes": copy.diff,
            "behindMs": copy.behind_ms,
            "bytesPerSecond": copy.transferred_byte_in_second,
        }
        for copy in status.ha_connection_info
    ]
    client = status.ha_client_runtime_info
    if client is not None and not status.master:
        lines.append(
            line
            | {
                "peer": client.master_addr,
                "state": "COPYING" if client.activated else status.refusal or "NOT CONNECTED",
                "behindBytes": max(0, client.master_flush_offset - client.max_offset),
                "bytesPerSecond": client.transferred_byte_in_second,
            }
        )
    yield from lines or [line]
