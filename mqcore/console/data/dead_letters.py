"""Dead letters: which groups have some, which they are, and sending them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mqcore.client.admin import Admin, FoundMessages, ResendReport
from mqcore.client.errors import NoRouteError
from mqcore.console.data.asking import each
from mqcore.errors import MQError
from mqcore.protocol.message import MessageExt
from mqcore.protocol.names import DLQ_GROUP_TOPIC_PREFIX, is_dlq_topic

LISTED_MAX: Final = 200
"""Dead letters on one page."""

GROUPS_MAX: Final = 100
"""Groups whose dead letters are counted on one page: each is a question."""


@dataclass(frozen=True, slots=True)
class DeadCount:
    """A group with a dead letter topic, how many lie there, and when the last one came, ms; None: no answer."""

    group: str
    messages: int | None
    newest_ms: int


async def dead_counts(admin: Admin) -> list[DeadCount]:
    """Return the groups that have a topic for dead letters, the first GROUPS_MAX, those with the most first."""
    topics = [name for name in await admin.list_topics() if is_dlq_topic(name)][:GROUPS_MAX]
    rows = []
    for topic, queues in (await each(topics, admin.offsets)).items():
        group = topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX)
        if isinstance(queues, NoRouteError):
            continue  # deleted meanwhile
        if isinstance(queues, MQError):
            rows.append(DeadCount(group, None, 0))
            continue
        count = sum(row.max_offset - row.min_offset for row in queues.values())
        rows.append(DeadCount(group, count, max((row.last_update_timestamp for row in queues.values()), default=0)))
    return sorted(rows, key=lambda row: (-(row.messages or 0), row.group))


async def dead_letters(admin: Admin, group: str) -> FoundMessages:
    """Return the oldest LISTED_MAX dead letters of a group. NotFoundError: it has none, and nobody knows it."""
    found = await admin.dead_letters(group, max_messages=LISTED_MAX)
    if not found:
        await admin.group_configs(group)
    return found


async def chosen(admin: Admin, group: str, msg_ids: Sequence[str]) -> tuple[list[MessageExt], dict[str, MQError]]:
    """Find dead letters by id; the second says which were not found, and why."""
    answers = await each(dict.fromkeys(msg_ids), lambda msg_id: admin.dead_letter(group, msg_id))
    found = [answer for answer in answers.values() if not isinstance(answer, MQError)]
    return found, {msg_id: answer for msg_id, answer in answers.items() if isinstance(answer, MQError)}


async def resend(admin: Admin, group: str, messages: Iterable[MessageExt], topic: str | None) -> ResendReport:
    """Send copies to the group alone, or to *topic* for all its groups."""
    return await admin.resend_dead_letters(group, messages, topic=topic)
