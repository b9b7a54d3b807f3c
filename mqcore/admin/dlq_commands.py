"""``mqcore dlq``: list, show, resend, export."""

from __future__ import annotations

from datetime import datetime
from typing import Any, BinaryIO

import click
import orjson

from mqcore.admin.message_commands import message_record, show_messages
from mqcore.admin.options import confirm, output_option, when, yes_option
from mqcore.admin.output import print_table, show, show_pairs, talk
from mqcore.admin.running import Common, PartialError, fail, run_admin
from mqcore.client.admin import Admin
from mqcore.client.admin.dead_letters import LIST_MAX, ResendReport, origin_topic
from mqcore.client.admin.messages import FoundMessages
from mqcore.protocol.message import MessageExt

count_option = click.option("-n", "--count", type=click.IntRange(1), default=LIST_MAX, show_default=True)
begin_option = click.option("--begin", type=when, help="Given up at this time or later.")
end_option = click.option("--end", type=when, help="Given up at this time or earlier.")


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them again."""


def read(common: Common, group: str, count: int, begin: datetime | None, end: datetime | None) -> FoundMessages:
    """Return dead letters, and say so when there are more; a group that nobody knows is not found."""

    async def work(admin: Admin) -> FoundMessages:
        found = await admin.dead_letters(group, max_messages=count, begin=begin, end=end)
        if not found:
            await admin.group_configs(group)
        return found

    found = run_admin(common, work)
    if found.truncated:
        talk(f"there are more than these {len(found)}: see -n, --begin and --end")
    return found


def dead_record(ext: MessageExt) -> dict[str, Any]:
    return {**message_record(ext), "originTopic": origin_topic(ext)}


@dlq.command("list")
@click.argument("group")
@count_option
@begin_option
@end_option
@output_option
@click.pass_obj
def list_dead(
    common: Common, group: str, count: int, begin: datetime | None, end: datetime | None, output: str
) -> None:
    """List the dead letters of GROUP."""
    found = read(common, group, count, begin, end)
    if output == "table":
        show_messages(found, output)
    else:
        show([dead_record(ext) for ext in found], output, lambda: None)


@dlq.command("show")
@click.argument("group")
@click.argument("msg_id")
@output_option
@click.pass_obj
def show_dead(common: Common, group: str, msg_id: str, output: str) -> None:
    """Show the dead letter of GROUP with MSG_ID."""
    record = dead_record(run_admin(common, lambda admin: admin.dead_letter(group, msg_id)))
    show(record, output, lambda: show_pairs(record, "table"))


@dlq.command("export")
@click.argument("group")
@click.argument("file", type=click.File("wb"), default="-")
@count_option
@begin_option
@end_option
@output_option
@click.pass_obj
def export_dead(
    common: Common, group: str, file: BinaryIO, count: int, begin: datetime | None, end: datetime | None, output: str
) -> None:
    """Write the dead letters of GROUP to FILE, or to standard output, as JSON, one per line.

    With a FILE, --output is for what is said about it.
    """
    found = read(common, group, count, begin, end)
    for ext in found:
        file.write(orjson.dumps(dead_record(ext)) + b"\n")
    if file.name == "<stdout>":
        talk(f"wrote {len(found)} dead letters")
    else:
        show_pairs({"group": group, "file": file.name, "messages": len(found)}, output)


@dlq.command("resend")
@click.argument("group")
@click.argument("msg_ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them, within -n, --begin and --end.")
@click.option("--topic", help="Send to this topic, for all its groups, instead of to GROUP alone.")
@count_option
@begin_option
@end_option
@yes_option
@output_option
@click.pass_obj
def resend(
    common: Common,
    group: str,
    msg_ids: tuple[str, ...],
    everything: bool,
    topic: str | None,
    count: int,
    begin: datetime | None,
    end: datetime | None,
    yes: bool,
    output: str,
) -> None:
    """Send the dead letters MSG_IDS of GROUP again. They stay where they are, too."""
    if bool(msg_ids) == everything:
        raise click.UsageError("give MSG_IDS or --all")
    where = f"to topic {topic}" if topic else f"to the group {group}"
    confirm(yes, f"send {'all dead letters' if everything else f'{len(msg_ids)} dead letters'} {where} again")

    async def work(admin: Admin) -> ResendReport:
        if everything:
            chosen: list[MessageExt] = list(await admin.dead_letters(group, max_messages=count, begin=begin, end=end))
        else:
            chosen = [await admin.dead_letter(group, msg_id) for msg_id in msg_ids]
        return await admin.resend_dead_letters(group, chosen, topic=topic)

    report = run_admin(common, work)
    rows = dict.fromkeys(report.sent, "sent") | {msg_id: str(error) for msg_id, error in report.failed.items()}
    show(
        {"group": group, "messages": rows},
        output,
        lambda: print_table(["MESSAGE ID", "RESULT"], list(rows.items())),
        [{"group": group, "msgId": msg_id, "result": result} for msg_id, result in rows.items()],
    )
    if report.failed and report.sent:
        fail(PartialError(f"{len(report.failed)} of {len(rows)} were not sent"))
    for error in report.failed.values():
        fail(error)
    talk(f"sent {len(report.sent)} dead letters again")
