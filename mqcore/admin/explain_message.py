"""Why one message is not consumed: what ``mqcore explain GROUP MESSAGE-ID`` finds.

The message is looked for in the topics of the group, then followed: does the group want it (its broker is asked, by a
pull with the group's own expression), is the group past it, and if it failed, where do its copies wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Final

from mqcore.admin.explain_checks import is_broadcast, ok, queue_name, warning, wrong
from mqcore.admin.explain_facts import ConsumptionFacts
from mqcore.admin.findings import Finding
from mqcore.admin.output import time_text
from mqcore.client.admin import Admin
from mqcore.client.asynchronous import Client
from mqcore.client.consume.polled.pull_api import PullStatus
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.client.model.subscription import Expression, Sql
from mqcore.errors import MQError
from mqcore.protocol import properties as names
from mqcore.protocol.heartbeat import SubscriptionData, is_tag_type
from mqcore.protocol.message import MessageExt
from mqcore.protocol.names import SCHEDULE_TOPIC, dlq_topic, retry_topic

FIRST_RETRY: Final = 1


@dataclass(slots=True)
class Traces:
    """One message, and the copies of it that wait, are retried, or were given up."""

    message: MessageExt
    delayed: list[MessageExt] = field(default_factory=list)
    retried: list[MessageExt] = field(default_factory=list)
    dead: list[MessageExt] = field(default_factory=list)


async def find_traces(admin: Admin, facts: ConsumptionFacts, msg_id: str) -> Traces:
    """Look for *msg_id* in the topics of the group; NotFoundError says where it is not."""
    own = (retry_topic(facts.group), dlq_topic(facts.group))
    for topic in (*facts.topics, *own):
        try:
            found = await admin.view_message(topic, msg_id)
        except (NotFoundError, NoRouteError):
            continue
        traces = Traces(found)
        traces.delayed = await copies(admin, SCHEDULE_TOPIC, found.msg_id)
        traces.retried = await copies(admin, own[0], found.msg_id)
        traces.dead = await copies(admin, own[1], found.msg_id)
        return traces
    raise NotFoundError(
        f"no message with id {msg_id} in {', '.join((*facts.topics, *own))}: it expired, was never stored (look at "
        "what its producer got), is not indexed yet, or lies in a topic that the group does not have"
    )


async def copies(admin: Admin, topic: str, msg_id: str) -> list[MessageExt]:
    """Return the copies in *topic*; none where it, or the id, is none."""
    try:
        return await admin.copies_of(topic, msg_id)
    except (NotFoundError, NoRouteError):
        return []


async def explain_message(mq: Client, facts: ConsumptionFacts, msg_id: str) -> list[Finding]:
    """Return what keeps the message from the group, or what became of it."""
    traces = await find_traces(mq.admin, facts, msg_id)
    ext = traces.message
    place = f"{queue_name(ext.queue)}/{ext.queue_offset}"
    findings = [ok("message", msg_id, f"lies at {place}, stored {time_text(ext.store_timestamp)}")]
    if ext.topic in facts.topics:
        findings += [finding async for finding in check_wanted(mq, facts, ext)]
    findings += check_place(facts, ext)
    findings += check_copies(facts, traces)
    return findings


async def check_wanted(mq: Client, facts: ConsumptionFacts, ext: MessageExt) -> AsyncIterator[Finding]:
    """Ask the broker whether the message passes the group's expression."""
    wanted = None if facts.connection is None else facts.connection.subscription_table.get(ext.topic)
    if wanted is None:
        return
    said = f"{'tag' if is_tag_type(wanted.expression_type) else 'SQL'} {wanted.sub_string!r}"
    has = f"its tag is {ext.tags!r}" if is_tag_type(wanted.expression_type) else f"its properties are {shown(ext)}"
    try:
        found = await mq.pull(ext.queue, ext.queue_offset, 1, expression=expression_of(wanted))
    except MQError as error:
        yield wrong("filter", ext.topic, f"the broker refuses {said}: {error}", error.hint or "mend the expression")
        return
    if found.status is PullStatus.OFFSET_ILLEGAL:
        said = f"the queue has {found.min_offset} to {found.max_offset}: the message has expired"
        yield wrong("expired", queue_name(ext.queue), said, "keep messages longer (fileReservedTime)")
    elif any(message.queue_offset == ext.queue_offset for message in found.messages):
        yield ok("filter", ext.topic, f"{said} lets it through")
    else:
        mend = "subscribe to it too, or send it with what the group wants; a group passes over the rest for good"
        yield wrong("filter", ext.topic, f"{said} does not let it through: {has}", mend)


def expression_of(wanted: SubscriptionData) -> Expression:
    return wanted.sub_string if is_tag_type(wanted.expression_type) else Sql(wanted.sub_string)


def shown(ext: MessageExt) -> str:
    own = {name: value for name, value in ext.properties.items() if name not in names.RESERVED_NAMES}
    return ", ".join(f"{name}={value!r}" for name, value in sorted(own.items())) or "none"


def check_place(facts: ConsumptionFacts, ext: MessageExt) -> Iterator[Finding]:
    """Is the group past the message, or still before it?"""
    bounds, position = facts.bounds.get(ext.queue), facts.positions.get(ext.queue)
    where = queue_name(ext.queue)
    if bounds is not None and ext.queue_offset < bounds.min_offset:
        said = f"the queue begins at {bounds.min_offset}: the message has expired"
        yield wrong("expired", where, said, "keep messages longer (fileReservedTime)")
    elif is_broadcast(facts):
        yield warning("place", where, "members broadcast: no broker knows who has it", "look at each member's log")
    elif position is None:
        said = "the group has committed nothing in this queue"
        mend = f"mqcore explain {facts.group} {ext.topic} says why"
        yield warning("place", where, said, mend)
    elif ext.queue_offset >= position.consumer_offset:
        behind = ext.queue_offset - position.consumer_offset
        said = f"not consumed yet: the group is at {position.consumer_offset}, {behind} messages before it"
        yield warning("place", where, said, f"mqcore explain {facts.group} {ext.topic} says what holds the group up")
    else:
        said = f"the group is past it, at {position.consumer_offset}: it was consumed, failed, or passed over"
        yield ok("place", where, said)


def check_copies(facts: ConsumptionFacts, traces: Traces) -> Iterator[Finding]:
    """Say how often the message has failed, and where its newest copy is."""
    group, ext = facts.group, traces.message
    if traces.dead:
        said = f"given up after {traces.dead[-1].reconsume_times} retries, {time_text(traces.dead[-1].store_timestamp)}"
        yield wrong(
            "dead letters", group, said, f"mqcore dlq show {group} {ext.msg_id}; mqcore dlq resend to try again"
        )
        return
    mine = [copy for copy in traces.delayed if copy.properties.get(names.PROPERTY_REAL_TOPIC) == retry_topic(group)]
    newest = max((*mine, *traces.retried), key=lambda copy: copy.reconsume_times, default=None)
    if newest is None:
        waiting = [copy for copy in traces.delayed if copy.properties.get(names.PROPERTY_REAL_TOPIC) == ext.topic]
        if not waiting:
            yield ok("retries", group, "no retry of it is known")
        return
    arrived = next((copy for copy in traces.retried if copy.reconsume_times == newest.reconsume_times), None)
    times = f"{newest.reconsume_times} times" if newest.reconsume_times > FIRST_RETRY else "once"
    if arrived is None:
        level = newest.properties.get(names.PROPERTY_DELAY_TIME_LEVEL, "?")
        said = f"failed {times} and waits at delay level {level} to be tried again"
        yield warning("retries", group, said, "see the member's log for what its handler raised")
        return
    position = facts.positions.get(arrived.queue)
    if position is not None and position.consumer_offset > arrived.queue_offset:
        yield ok("retries", group, f"failed {times}; the last retry is behind the group, and no further one is known")
    else:
        said = f"failed {times}, and its next retry waits at {queue_name(arrived.queue)}/{arrived.queue_offset}"
        yield warning("retries", group, said, f"mqcore explain {group} says what holds the group up")
