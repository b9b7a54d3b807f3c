"""``mqcore offset``: list, reset, skip, clone; and ``mqcore lag``."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import click

from mqcore.admin.options import confirm, output_option, show_outcomes, yes_option
from mqcore.admin.output import show, show_records, talk, time_text
from mqcore.admin.running import Common, PartialError, check_outcomes, fail, run, run_admin
from mqcore.client.admin import Admin
from mqcore.client.admin.groups import is_system_group
from mqcore.client.admin.offsets import GroupLag, ResetReport, ResetTo, Target
from mqcore.client.admin.times import parse_time
from mqcore.client.errors import NotFoundError
from mqcore.protocol.message import MessageQueue

QUEUE_COLUMNS = {"topic": "TOPIC", "broker": "BROKER", "queueId": "QUEUE"}
LAG_COLUMNS = {
    **QUEUE_COLUMNS,
    "brokerOffset": "BROKER OFFSET",
    "consumerOffset": "CONSUMER OFFSET",
    "lag": "LAG",
    "lastConsumed": "LAST CONSUMED",
}
GROUP_COLUMNS = {"group": "GROUP", "lag": "LAG", "delaySeconds": "DELAY S", "tps": "TPS", "members": "MEMBERS"}


@click.group()
def offset() -> None:
    """Look at and change where groups are."""


def queue_record(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id}


@offset.command("list")
@click.argument("group")
@click.argument("topic", required=False)
@output_option
@click.pass_obj
def list_offsets(common: Common, group: str, topic: str | None, output: str) -> None:
    """Show where GROUP is in each queue (of TOPIC)."""
    found = run_admin(common, lambda admin: admin.lag(group, topic))
    show_records(lag_records(found), output, LAG_COLUMNS)


def place(text: str) -> Target:
    """Read where to reset to: earliest, latest, an offset, or a time."""
    if text in (ResetTo.EARLIEST, ResetTo.LATEST):
        return ResetTo(text)
    if text.isdecimal():
        return int(text)
    found = parse_time(text)
    if found is None:
        raise click.BadParameter(f"got {text!r}, wanted earliest, latest, an offset, or a time such as 90m (ago)")
    return found


@offset.command("reset")
@click.argument("group")
@click.argument("topic")
@click.option("--to", "target", type=place, required=True, help="earliest, latest, an offset, a time, or 90m (ago).")
@click.option(
    "--queue", "only", metavar="BROKER/ID", multiple=True, help="Only this queue; may be given several times."
)
@click.option("--no-force", is_flag=True, help="Go backwards only.")
@click.option("--dry-run", is_flag=True, help="Show what would be, and change nothing.")
@yes_option
@output_option
@click.pass_obj
def reset_offsets(
    common: Common,
    group: str,
    topic: str,
    target: Target,
    only: tuple[str, ...],
    no_force: bool,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Put GROUP elsewhere in TOPIC."""
    if not dry_run:
        confirm(yes, f"change the offsets of the group {group} in topic {topic}")
    queues = [parse_queue(topic, text) for text in only] or None
    report = run_admin(
        common,
        lambda admin: admin.reset_offsets(group, topic, target, queues=queues, force=not no_force, dry_run=dry_run),
    )
    show_reset(report, output)


def parse_queue(topic: str, text: str) -> MessageQueue:
    """Read ``broker/id``; a usage error tells what is wrong."""
    broker, _, queue_id = text.rpartition("/")
    if not broker or not queue_id.isdecimal():
        raise click.BadParameter(f"got {text!r}, wanted broker/queue, such as broker-a/0", param_hint="--queue")
    return MessageQueue(topic, broker, int(queue_id))


def show_reset(report: ResetReport, output: str) -> None:
    records = [
        {
            **queue_record(row.queue),
            "before": row.before,
            "after": row.after,
            "error": str(report.failed[row.queue]) if row.queue in report.failed else None,
        }
        for row in report.queues
    ]
    columns = {**QUEUE_COLUMNS, "before": "BEFORE", "after": "AFTER"}
    show_records(records, output, {**columns, "error": "ERROR"} if report.failed else columns)
    failures = list(report.failed.values())
    if failures and len(failures) < len(records):
        fail(PartialError(f"{len(failures)} of {len(records)} queues were not reset"))
    for error in failures:
        fail(error)
    if report.dry_run:
        talk("nothing was changed")
    elif report.by_members:
        talk(f"the members of {report.group} were told; they commit in a moment")


@offset.command("skip")
@click.argument("group")
@click.argument("topic")
@click.option("--dry-run", is_flag=True, help="Show what would be, and change nothing.")
@yes_option
@output_option
@click.pass_obj
def skip(common: Common, group: str, topic: str, dry_run: bool, yes: bool, output: str) -> None:
    """Let GROUP pass over everything in TOPIC that it has not consumed."""
    if not dry_run:
        confirm(yes, f"let the group {group} skip what it has not consumed in topic {topic}")
    show_reset(run_admin(common, lambda admin: admin.skip_accumulated(group, topic, dry_run=dry_run)), output)


@offset.command("clone")
@click.argument("source")
@click.argument("target")
@click.argument("topic", required=False)
@yes_option
@output_option
@click.pass_obj
def clone(common: Common, source: str, target: str, topic: str | None, yes: bool, output: str) -> None:
    """Give the group TARGET the offsets of the group SOURCE (in TOPIC)."""
    confirm(yes, f"overwrite offsets of the group {target}")
    outcomes = run_admin(common, lambda admin: admin.clone_offsets(source, target, topic))
    show_outcomes(outcomes, {"source": source, "target": target}, "cloned", output)
    check_outcomes(outcomes, "cloned")


# Lag.


def lag_records(found: GroupLag) -> list[dict[str, Any]]:
    return [
        {
            **queue_record(row.queue),
            "brokerOffset": row.broker_offset,
            "consumerOffset": row.consumer_offset,
            "lag": row.lag,
            "lastConsumed": time_text(row.last_consumed_ms),
            "delaySeconds": row.delay_ms(found.now_ms) / 1000,
        }
        for row in found.queues
    ]


def lag_value(found: GroupLag) -> dict[str, Any]:
    """Return what ``lag GROUP`` prints as JSON."""
    return {
        "group": found.group,
        "lag": found.total,
        "delaySeconds": found.delay_ms / 1000,
        "tps": round(found.consume_tps, 2),
        "lastConsumed": time_text(found.last_consumed_ms),
        "topics": {topic: part.total for topic, part in found.by_topic().items()},
        "queues": lag_records(found),
    }


async def lag_of_groups(admin: Admin) -> list[dict[str, Any]]:
    """Return one record for each group that has offsets."""
    records = []
    for name in await admin.list_groups():
        if is_system_group(name):
            continue
        try:
            found = await admin.lag(name)
        except NotFoundError:
            continue
        value = lag_value(found)
        record = {key: value[key] for key in ("group", "lag", "delaySeconds", "tps")}
        records.append({**record, "members": len(await admin.group_members(name))})
    return records


@click.command()
@click.argument("group", required=False)
@click.argument("topic", required=False)
@click.option("--watch", is_flag=True, help="Go on, until interrupted.")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between two looks."
)
@output_option
@click.pass_obj
def lag(common: Common, group: str | None, topic: str | None, watch: bool, interval: float, output: str) -> None:
    """Show how far behind GROUP is (in TOPIC), or all groups. With --watch JSON comes one value per line."""

    async def look(admin: Admin) -> None:
        if group is None:
            show_records(await lag_of_groups(admin), output, GROUP_COLUMNS)
            return
        found = await admin.lag(group, topic)
        rows = lag_records(found)
        show(lag_value(found), output, lambda: show_records(rows, "table", LAG_COLUMNS), rows)
        talk(f"lag {found.total}, delay {found.delay_ms / 1000:g} s")

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM) if watch else ():
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with common.client() as mq:
            await look(mq.admin)
            while watch and not stop.is_set():
                try:
                    async with asyncio.timeout(interval):
                        await stop.wait()
                except TimeoutError:
                    await look(mq.admin)

    run(work)
