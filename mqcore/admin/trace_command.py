"""``mqcore trace``: what clients with tracing on told of one message."""

from __future__ import annotations

from datetime import datetime

import click

from mqcore.admin.options import output_option, when
from mqcore.admin.output import show_records, talk, time_text
from mqcore.admin.running import Common, run_admin
from mqcore.client.admin import Admin
from mqcore.client.admin.messages import QUERY_MAX
from mqcore.client.admin.traces import Trace, TraceStep, trace_of
from mqcore.client.errors import NotFoundError
from mqcore.client.telemetry.trace import TraceKind
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

    async def work(admin: Admin) -> Trace:
        found = await trace_of(admin, msg_id, trace_topic, begin=begin or 0, end=end)
        if not found.steps:
            raise NotFoundError(
                f"no trace of {msg_id} in {trace_topic}: its clients do not trace, the brokers do not keep traces "
                "(traceTopicEnable), or it is not indexed yet"
            )
        return found

    found = run_admin(common, work)
    show_records([record_of(step) for step in found.steps], output, COLUMNS)
    if found.truncated:
        talk(f"there may be more traces than these {QUERY_MAX} messages have: narrow the time by --begin and --end")


def record_of(step: TraceStep) -> dict[str, object]:
    return {
        "time": time_text(step.begin_ms),
        "what": step.title,
        "group": step.group,
        "client": step.event.client,
        "costMs": step.cost_ms,
        "success": step.success,
        "retryTimes": step.retry_times,
        "note": note_of(step),
    }


def note_of(step: TraceStep) -> str:
    event = step.event
    match event.kind:
        case TraceKind.PUB:
            return f"to {event.topic} at {event.store_host}, {event.body_size} bytes"
        case TraceKind.END_TRANSACTION:
            return "after a check" if event.was_checked else ""
        case TraceKind.SUB_BEFORE:
            return "no end is known: it runs, or its client died"
        case TraceKind.SUB_AFTER:
            return event.context_code.name if event.context_code is not None else ""
