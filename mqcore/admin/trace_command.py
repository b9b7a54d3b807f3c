"""``mqcore trace``: what clients with tracing on told of one message."""

from __future__ import annotations

from datetime import datetime

import click

from mqcore.admin.options import output_option, when
from mqcore.admin.output import show_records, talk
from mqcore.admin.running import Common, run_admin
from mqcore.admin.trace_records import Step, parse_records, steps_of
from mqcore.client.admin import Admin
from mqcore.client.admin.messages import QUERY_MAX
from mqcore.client.errors import NotFoundError
from mqcore.protocol.names import TRACE_TOPIC

COLUMNS = {
    "time": "TIME",
    "what": "WHAT",
    "group": "GROUP",
    "client": "CLIENT",
    "costMs": "MS",
    "success": "SUCCESS",
    "retryTimes": "RETRY",
    "note": "NOTE",
}


@click.command()
@click.argument("msg_id", metavar="MESSAGE-ID")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Where clients write their traces.")
@click.option("--begin", type=when, help="Traces stored at this time or later.")
@click.option("--end", type=when, help="Traces stored at this time or earlier.")
@output_option
@click.pass_obj
def trace(
    common: Common, msg_id: str, trace_topic: str, begin: datetime | None, end: datetime | None, output: str
) -> None:
    """Show who sent the message and who consumed it, when, how long that took, and how it ended.

    Only clients that trace tell of themselves (trace=True, or enableMsgTrace in Java), half a second later or so.
    """

    async def work(admin: Admin) -> tuple[list[Step], bool]:
        found = await admin.query_by_key(trace_topic, msg_id, max_messages=QUERY_MAX, begin=begin or 0, end=end)
        steps = steps_of(parse_records((ext.body, str(ext.born_host)) for ext in found), msg_id)
        if not steps:
            raise NotFoundError(
                f"no trace of {msg_id} in {trace_topic}: its clients do not trace, the brokers do not keep traces "
                "(traceTopicEnable), or it is not indexed yet"
            )
        return steps, found.truncated

    steps, is_truncated = run_admin(common, work)
    show_records([step.record() for step in steps], output, COLUMNS)
    if is_truncated:
        talk(f"there may be more traces than these {QUERY_MAX} messages have: narrow the time by --begin and --end")
