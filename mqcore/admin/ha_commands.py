"""``mqcore ha``: how brokers' logs are copied, and who leads a failover group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click

from mqcore.admin.group_changes import GroupChanger
from mqcore.admin.group_loss import Gap, Loss, loss_of
from mqcore.admin.ha_untold import UntoldBroker, in_words, look_at_tables, untold_records
from mqcore.admin.options import broker_option, check_place, cluster_option, confirm, output_option, yes_option
from mqcore.admin.output import show_pairs, show_records, talk, time_text
from mqcore.admin.running import Common, PartialError, fail, run_admin
from mqcore.client.admin import Admin
from mqcore.client.admin.base import BrokerPlace
from mqcore.client.admin.group_report import GroupReport, Place, Survey, survey, the_group
from mqcore.errors import ClientError, MQError
from mqcore.protocol.group_bodies import GroupChange, MemberStatus
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

GROUP_COLUMNS: Final = {
    "broker": "BROKER",
    "brokerId": "MEMBER",
    "role": "ROLE",
    "state": "STATE",
    "epoch": "EPOCH",
    "inSync": "IN SYNC",
    "trusted": "TRUSTED",
    "end": "END",
    "confirmed": "CONFIRMED",
    "acked": "ACKED",
    "behindBytes": "BEHIND BYTES",
    "behindMs": "BEHIND MS",
    "address": "ADDRESS",
    "since": "SINCE",
    "why": "WHY",
}
"""What a line about a member of a failover group has beside COLUMNS, or shows of them."""

Command = TypeVar("Command", bound=Callable[..., Any])

address_option = click.option("--address", help="By way of the broker at this host:port, without a name server.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be, and change nothing.")
timeout_option = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=30.0, show_default=True,
    help="How long to wait until the member leads, s.",
)  # fmt: skip
member_argument = click.argument("member", type=click.IntRange(min=1), metavar="ID")


def place_options(command: Command) -> Command:
    """Give *command* the options that say which brokers are meant."""
    for option in (address_option, broker_option, cluster_option):
        command = option(command)
    return command


def place_of(cluster: str | None, broker: str | None, address: str | None) -> Place:
    check_place(cluster, broker)
    if address is not None and (cluster or broker):
        raise click.UsageError("give --address alone, or --cluster or --broker")
    return Place(cluster, broker, address)


@click.group()
def ha() -> None:
    """Look at replicas, and steer failover groups."""


@ha.command("status")
@place_options
@output_option
@click.pass_obj
def ha_status(common: Common, cluster: str | None, broker: str | None, address: str | None, output: str) -> None:
    """Show who copies, how far, and how far behind: every master's slaves, every slave's master, every group's members.

    Of a failover group all members are asked; what a slave has acknowledged only the master knows. Of brokers of
    RocketMQ before release 5, which do not tell, it shows what can be known.
    """
    place = place_of(cluster, broker, address)

    async def work(admin: Admin) -> tuple[dict[str, BrokerPlace | None], Survey, dict[str, UntoldBroker | MQError]]:
        places = await place.find(admin)
        found = await survey(admin, places)
        looked = [look_at_tables(admin, at, places.get(at)) for at in found.untold]
        return places, found, dict(zip(found.untold, await asyncio.gather(*looked), strict=True))

    places, found, tables = run_admin(common, work)
    untold = [said for said in tables.values() if isinstance(said, UntoldBroker)]
    pairs = [record for at, status in found.others.items() for record in records_of(at, places.get(at), status)]
    pairs += untold_records(untold, COLUMNS)
    members = [record for group in found.groups for record in member_records(group)]
    if output == "table" and members:
        if pairs:
            show_records(pairs, output, COLUMNS)
        show_records(members, output, GROUP_COLUMNS)
    else:
        show_records([*pairs, *members], output, COLUMNS)
    for line in in_words(untold):
        talk(line)
    silent = {**found.silent, **{at: said for at, said in tables.items() if isinstance(said, MQError)}}
    missing = [f"no answer from {at} ({error})" for at, error in silent.items()]
    missing += [line for group in found.groups for line in missing_in(group, found)]
    if missing:
        fail(PartialError("; ".join(missing)))


def missing_in(group: GroupReport, found: Survey) -> Iterator[str]:
    """What a group lacks: members that announce themselves no more, or not where they can be asked, and who leads."""
    for known in group.statuses():
        is_asked = known.is_there and known.address in found.silent
        if known.member not in group.answers and not is_asked:
            yield f"member {known.member} of {group.broker_name} is gone"
    if not group.facts.is_master:
        yield f"nobody leads {group.broker_name}"


def records_of(address: str, place: BrokerPlace | None, status: HARuntimeInfo) -> Iterator[dict[str, Any]]:
    """A line for each slave of a broker, one for a slave's master, and one at least."""
    line = dict.fromkeys(COLUMNS) | {
        "broker": place.name if place is not None else address,
        "brokerId": place.broker_id if place is not None else None,
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


def member_records(group: GroupReport) -> Iterator[dict[str, Any]]:
    """A line for each member of a failover group: what it says of itself, or what others know if it does not answer."""
    for known in group.statuses():
        yield dict.fromkeys({**COLUMNS, **GROUP_COLUMNS}) | {
            "cluster": group.cluster,
            "broker": group.broker_name,
            "brokerId": known.member,
            "inSync": known.is_in_sync,
            **(_of_itself(group, known) if known.member in group.answers else _of_the_absent(known)),
            "address": group.addresses.get(known.member) or known.address or None,
        }


def _of_itself(group: GroupReport, known: MemberStatus) -> dict[str, Any]:
    answer, own = group.answers[known.member], group.own(known.member)
    assert own is not None  # or it would be no member's answer
    client, has_acked = answer.ha_client_runtime_info, known.acked >= 0
    return {
        "role": "MASTER" if own.is_master else "SLAVE",
        "peer": None if own.is_master else own.master_address or None,
        "state": own.phase.upper(),
        "epoch": own.epoch,
        "trusted": next((said.is_trusted for said in own.member_statuses if said.member == own.me), None),
        "end": own.end,
        "confirmed": own.confirmed,
        "acked": known.acked if has_acked else None,
        "behindBytes": known.behind_bytes if has_acked else None,
        "behindMs": known.behind_ms if has_acked else None,
        "bytesPerSecond": client.transferred_byte_in_second if client is not None and not own.is_master else None,
        "engineSilentMs": own.engine_silent_ms,
        "since": time_text(own.changed_ms),
        "why": own.why,
    }


def _of_the_absent(known: MemberStatus) -> dict[str, Any]:
    return {
        "state": "NO ANSWER" if known.is_there else "GONE",
        "epoch": known.last_epoch or None,
        "end": known.end if known.end >= 0 else None,
    }


@ha.command("switch")
@click.option("--to", "member", type=click.IntRange(min=1), required=True, metavar="ID", help="Who leads next.")
@place_options
@dry_run_option
@timeout_option
@output_option
@click.pass_obj
def switch(
    common: Common, member: int, cluster: str | None, broker: str | None, address: str | None, dry_run: bool,
    timeout_s: float, output: str,
) -> None:  # fmt: skip
    """Let another member of a failover group lead, one that is in sync. Nothing is lost, and sends wait for it."""
    place = place_of(cluster, broker, address)

    async def work(admin: Admin) -> dict[str, Any]:
        changer = GroupChanger(admin, await the_group(admin, place))
        return await changer.let_lead(GroupChange.SWITCH, member, timeout_s, dry_run=dry_run)

    show_pairs(run_admin(common, work), output)


@ha.command("remove")
@member_argument
@place_options
@dry_run_option
@yes_option
@output_option
@click.pass_obj
def remove(
    common: Common, member: int, cluster: str | None, broker: str | None, address: str | None, dry_run: bool,
    yes: bool, output: str,
) -> None:  # fmt: skip
    """Forget the member ID of a failover group, gone for good: its store can join only emptied, as a new one."""
    place = place_of(cluster, broker, address)
    if not dry_run:
        confirm(yes, f"forget the member {member} for good")

    async def work(admin: Admin) -> dict[str, Any]:
        return await GroupChanger(admin, await the_group(admin, place)).remove(member, dry_run=dry_run)

    show_pairs(run_admin(common, work), output)


@ha.command("unclean-elect")
@member_argument
@place_options
@dry_run_option
@timeout_option
@yes_option
@output_option
@click.pass_obj
def unclean_elect(
    common: Common, member: int, cluster: str | None, broker: str | None, address: str | None, dry_run: bool,
    timeout_s: float, yes: bool, output: str,
) -> None:  # fmt: skip
    """Let the member ID of a failover group lead, whatever it lacks of what others acknowledged: that is lost.

    For when all that are in sync are gone for good. With --dry-run it says what may be lost.
    """
    place = place_of(cluster, broker, address)

    async def look(admin: Admin) -> tuple[GroupReport, Loss]:
        report = await the_group(admin, place)
        known = next((said for said in report.statuses() if said.member == member), None)
        if known is not None and known.is_there and known.is_in_sync and known.is_trusted:
            raise ClientError(f"member {member} is in sync: mqcore ha switch --to {member} loses nothing")
        return report, await loss_of(admin, report, member)

    report, loss = run_admin(common, look)
    for line in loss.in_words():
        talk(line)
    if not dry_run:
        confirm(yes, loss.in_one_sentence)
    talk(f"this would {loss.in_one_sentence}")

    async def work(admin: Admin) -> dict[str, Any]:
        return await GroupChanger(admin, report).let_lead(GroupChange.UNCLEAN_ELECT, member, timeout_s, dry_run=dry_run)

    done = run_admin(common, work)
    record = {**done, "lostBytesMax": loss.bytes_max, "gaps": [gap_record(gap) for gap in loss.gaps]}
    # What a table says of them has been said in words.
    show_pairs(record if output != "table" else {**done, "lostBytesMax": loss.bytes_max}, output)


def gap_record(gap: Gap) -> dict[str, Any]:
    return {
        "member": gap.member,
        "inSync": gap.is_in_sync,
        "answers": gap.is_exact,
        "epoch": gap.epoch if gap.is_known else None,
        "end": gap.end if gap.is_known else None,
        "lostBytes": gap.lost_bytes if gap.is_known else None,
        "lostEpochs": gap.lost_epochs if gap.is_known else None,
    }
