"""``mqcore message``: get, query, send, consume-directly."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from mqcore.admin.options import output_option, when
from mqcore.admin.output import message_json, print_table, show, show_pairs, show_records, talk, time_text
from mqcore.admin.running import Common, run_admin
from mqcore.admin.send_command import send
from mqcore.client.admin import Admin
from mqcore.client.admin.messages import QUERY_MAX, FoundMessages
from mqcore.client.model.messages import ReceivedMessage
from mqcore.protocol.message import MessageExt, MessageQueue

BODY_SHOWN_MAX = 60
MESSAGE_COLUMNS = {
    "broker": "BROKER",
    "queueId": "QUEUE",
    "offset": "OFFSET",
    "msgId": "MESSAGE ID",
    "tag": "TAG",
    "keys": "KEYS",
    "stored": "STORED",
    "body": "BODY",
}


@click.group()
def message() -> None:
    """Find messages, and send some."""


message.add_command(send)


def message_record(ext: MessageExt) -> dict[str, Any]:
    """Return what the JSON output has of a message."""
    return message_json(ReceivedMessage(ext, ext.queue))


def show_messages(messages: list[MessageExt], output: str) -> None:
    """Print messages; a table has the begin of each body."""
    records = [message_record(ext) for ext in messages]
    if output == "table":
        for record in records:
            text = record.get("body", "(binary)")
            shown = text if len(text) <= BODY_SHOWN_MAX else text[:BODY_SHOWN_MAX] + "..."
            record |= {"body": " ".join(shown.split()), "stored": time_text(record["storeTimestamp"])}
    show_records(records, output, MESSAGE_COLUMNS)


@message.command("get")
@click.argument("topic")
@click.argument("msg_id", required=False)
@click.option("--at", "place", metavar="BROKER/QUEUE/OFFSET", help="The message at this place, instead of one by id.")
@output_option
@click.pass_obj
def get_message(common: Common, topic: str, msg_id: str | None, place: str | None, output: str) -> None:
    """Show the message of TOPIC with MSG_ID (either kind of id), or at a place."""
    if (msg_id is None) == (place is None):
        raise click.UsageError("give MSG_ID or --at")
    queue_and_offset = None if place is None else parse_place(topic, place)

    async def work(admin: Admin) -> MessageExt:
        if queue_and_offset is not None:
            return await admin.message_at(*queue_and_offset)
        assert msg_id is not None
        return await admin.view_message(topic, msg_id)

    record = message_record(run_admin(common, work))
    show(record, output, lambda: show_pairs(record, "table"))


def parse_place(topic: str, text: str) -> tuple[MessageQueue, int]:
    """Read ``broker/queue/offset``; a usage error tells what is wrong."""
    broker, queue_id, offset = ["", "", "", *text.rsplit("/", 2)][-3:]
    if not broker or not queue_id.isdecimal() or not offset.isdecimal():
        raise click.BadParameter(f"got {text!r}, wanted broker/queue/offset, such as broker-a/0/42", param_hint="--at")
    return MessageQueue(topic, broker, int(queue_id)), int(offset)


@message.command("query")
@click.argument("topic")
@click.argument("key")
@click.option("-n", "--count", type=click.IntRange(1, QUERY_MAX), default=QUERY_MAX, show_default=True)
@click.option("--begin", type=when, help="Stored at this time or later.")
@click.option("--end", type=when, help="Stored at this time or earlier.")
@output_option
@click.pass_obj
def query(
    common: Common, topic: str, key: str, count: int, begin: datetime | None, end: datetime | None, output: str
) -> None:
    """Show the messages of TOPIC that have KEY. Brokers look at 64 messages at most."""

    async def work(admin: Admin) -> FoundMessages:
        return await admin.query_by_key(topic, key, max_messages=count, begin=begin or 0, end=end)

    found = run_admin(common, work)
    show_messages(found, output)
    if found.truncated:
        talk(f"there may be more than these {len(found)}: narrow the time by --begin and --end")


@message.command("consume-directly")
@click.argument("group")
@click.argument("client_id")
@click.argument("offset_msg_id")
@click.option("--topic", help="The message's topic; brokers of version 5 need it.")
@output_option
@click.pass_obj
def consume_directly(
    common: Common, group: str, client_id: str, offset_msg_id: str, topic: str | None, output: str
) -> None:
    """Let the member CLIENT_ID of GROUP consume one message now."""
    result = run_admin(common, lambda admin: admin.consume_directly(group, client_id, offset_msg_id, topic))
    record = {
        "result": None if result.consume_result is None else result.consume_result.name,
        "remark": result.remark,
        "spentMs": result.spent_time_millis,
        "order": result.order,
    }
    show(record, output, lambda: print_table(list(record), [list(map(str, record.values()))]))
