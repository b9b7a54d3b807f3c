"""Why a consumer group does not consume: what ``mqcore explain GROUP [TOPIC]`` makes of the facts.

Each check looks at one thing, and is a function from facts to findings; CHECKS is all of them, in the order in which a
message meets what they look at. What is well is found too, so that one sees what was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mqcore.admin.explain_facts import ConsumptionFacts
from mqcore.admin.findings import Finding, Health
from mqcore.codes import PermName
from mqcore.protocol.admin_bodies import ConsumerRunningInfo, ProcessQueueInfo
from mqcore.protocol.heartbeat import EXPRESSION_TAG, SUB_ALL, MessageModel
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import dlq_topic, retry_topic

SILENT_MS: Final = 120_000
"""Whoever holds a queue pulls it at least each 30 s; RocketMQ's clients give up one that was not pulled for so long."""

SLOW_MS: Final = 60_000
"""A handler that has had messages for so long without finishing one is slow, or hangs."""

Check = Callable[[ConsumptionFacts], Iterator[Finding]]


def ok(check: str, subject: str, found: str) -> Finding:
    return Finding(check, subject, Health.OK, found)


def warning(check: str, subject: str, found: str, mend: str) -> Finding:
    return Finding(check, subject, Health.WARNING, found, mend)


def wrong(check: str, subject: str, found: str, mend: str) -> Finding:
    return Finding(check, subject, Health.ERROR, found, mend)


def queue_name(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}/{queue.queue_id}"


def check_topics(facts: ConsumptionFacts) -> Iterator[Finding]:
    """A topic must exist, and it and its brokers must be readable."""
    if not facts.topics:
        said = "it subscribes to nothing and has no offsets anywhere"
        yield wrong("topic", facts.group, said, "look for a misspelt group: mqcore group list; or name the topic")
    for topic in facts.topics:
        configs = facts.topic_configs.get(topic, {})
        if not configs:
            mend = f"look for a misspelt name: mqcore topic list; or make it: mqcore topic create {topic}"
            yield wrong("topic", topic, "no broker has it", mend)
        for broker, config in sorted(configs.items()):
            if not PermName.is_readable(config.perm):
                said = f"{broker} lets nobody read it: its permission is {PermName.to_text(config.perm)}"
                yield wrong("read permission", topic, said, f"mqcore topic update {topic} --perm rw")
            elif config.read_queue_nums < config.write_queue_nums:
                said = (
                    f"{broker} writes {config.write_queue_nums} queues and has {config.read_queue_nums} read: "
                    "the others' messages reach nobody"
                )
                mend = f"mqcore topic update {topic} --read-queues {config.write_queue_nums}"
                yield warning("read queues", topic, said, mend)
            else:
                yield ok("topic", topic, f"{broker} has {config.read_queue_nums} queues to read")
    for broker, perm in sorted(facts.permissions.items()):
        if not PermName.is_readable(perm) and any(broker in configs for configs in facts.topic_configs.values()):
            said = f"it lets nobody read: its brokerPermission is {PermName.to_text(perm)}"
            yield wrong(
                "read permission", broker, said, f"mqcore broker config {broker} --set brokerPermission=6 --yes"
            )


def check_group(facts: ConsumptionFacts) -> Iterator[Finding]:
    """Brokers must know the group, and let it consume."""
    needed = sorted({broker for configs in facts.topic_configs.values() for broker in configs})
    missing = [broker for broker in needed if broker not in facts.configs]
    if missing:
        mend = f"mqcore group create {facts.group}; a member's first heart-beat makes it where that is allowed"
        yield warning("group", facts.group, f"{', '.join(missing)} does not have it", mend)
    for broker, config in sorted(facts.configs.items()):
        if not config.consume_enable:
            said = f"{broker} refuses its pulls: consuming is disabled"
            yield wrong("consume enabled", facts.group, said, f"mqcore group update {facts.group} --enable")
        elif not config.retry_max_times:
            said = f"on {broker} a message that failed once is a dead letter: retryMaxTimes is 0"
            yield warning("retries", facts.group, said, f"mqcore group update {facts.group} --retry-max 16")
        else:
            yield ok("group", facts.group, f"{broker} lets it consume")


def check_members(facts: ConsumptionFacts) -> Iterator[Finding]:
    """Somebody must be there, and answer."""
    if facts.connection is None or not facts.connection.connection_set:
        mend = (
            "start one; if one runs, compare its group name, namespace and name servers with these, "
            "and look into its log for refused heart-beats"
        )
        yield wrong("members", facts.group, "no member is online", mend)
        return
    for name, info in facts.members.items():
        if isinstance(info, ConsumerRunningInfo):
            yield ok("members", facts.group, f"{name} is online and answers")
        else:
            mend = "what it holds is not known: it hangs, or is a client that does not answer this question"
            yield warning("members", facts.group, f"{name} is online and does not answer: {info}", mend)


def check_broadcast(facts: ConsumptionFacts) -> Iterator[Finding]:
    """Broadcast members have their offsets themselves, and brokers may refuse them."""
    if facts.connection is None or facts.connection.message_model is not MessageModel.BROADCASTING:
        return
    refusing = sorted(name for name, config in facts.configs.items() if not config.consume_broadcast_enable)
    if refusing:
        said = f"its members broadcast, and {', '.join(refusing)} refuses that"
        yield wrong("broadcast", facts.group, said, f"mqcore group update {facts.group} --broadcast")
    said = "its members broadcast: each gets every message, retries none, and keeps its offsets in a file of its own"
    yield warning("broadcast", facts.group, said, "look at each member's log; lag and offsets of brokers say nothing")


def check_subscriptions(facts: ConsumptionFacts) -> Iterator[Finding]:
    """Members must subscribe to the topic, and all to the same."""
    if facts.connection is None:
        return
    conflict = facts.connection.subscription_conflict
    if conflict is not None:
        mend = "let all members of a group subscribe to the same, or give them groups of their own"
        yield wrong("subscription", conflict.topic, str(conflict), mend)
    for topic in facts.topics:
        wishes = {name: wish_of(info, topic) for name, info in facts.answers.items()}
        known = facts.connection.subscription_table.get(topic)
        if known is None and not any(wishes.values()):
            names = ", ".join(sorted(set(facts.connection.subscription_table) - {retry_topic(facts.group)}))
            said = f"no member subscribes to it; they subscribe to {names or 'nothing'}"
            yield wrong("subscription", topic, said, "subscribe to it in the program; topic names heed case")
        elif conflict is None and len(set(wishes.values())) > 1:
            said = "members want different things: " + "; ".join(
                f"{name} wants {wish or 'nothing'}" for name, wish in sorted(wishes.items())
            )
            mend = "let all members of a group subscribe to the same, or give them groups of their own"
            yield wrong("subscription", topic, said, mend)
        elif known is not None:
            kind = known.expression_type or EXPRESSION_TAG
            yield ok("subscription", topic, f"members want {kind} {known.sub_string or SUB_ALL}")


def wish_of(info: ConsumerRunningInfo, topic: str) -> str:
    """Return what a member wants of *topic*, put so that it can be compared; empty when nothing."""
    for row in info.subscription_set:
        if row.topic == topic:
            if row.tags_set:
                return f"{EXPRESSION_TAG} {' || '.join(sorted(row.tags_set))}"
            return f"{row.expression_type or EXPRESSION_TAG} {row.sub_string or SUB_ALL}"
    return ""


def check_holders(facts: ConsumptionFacts) -> Iterator[Finding]:
    """Each queue must be held by a member. Members that do not answer, or tell no queues, may hold any."""
    answers = facts.answers
    if not any(info.mq_table for info in answers.values()) or len(answers) < len(facts.members):
        return
    idle = sorted(name for name, info in answers.items() if not info.mq_table)
    if idle:
        said = f"{', '.join(idle)} holds no queue: there are more members than queues"
        yield warning("queues", facts.group, said, "stop some, or give the topics more queues")
    held = {queue for info in answers.values() for queue in info.mq_table}
    for topic in facts.topics:
        free = [queue for queue in readable_queues(facts, topic) if queue not in held]
        for queue in free:
            mend = "wait for the next rebalance (20 s); if it stays, look for members that do not see the same topics"
            yield wrong("queues", queue_name(queue), "no member holds it", mend)
        if not free and readable_queues(facts, topic):
            yield ok("queues", topic, f"all {len(readable_queues(facts, topic))} queues are held")


def readable_queues(facts: ConsumptionFacts, topic: str) -> list[MessageQueue]:
    configs = facts.topic_configs.get(topic, {})
    return [
        queue
        for queue in facts.queues(topic)
        if queue.broker_name not in configs or queue.queue_id < configs[queue.broker_name].read_queue_nums
    ]


def check_offsets(facts: ConsumptionFacts) -> Iterator[Finding]:
    """An offset must lie between the ends of its queue."""
    for queue in (queue for topic in facts.topics for queue in facts.queues(topic)):
        bounds, position = facts.bounds[queue], facts.positions.get(queue)
        reset = f"mqcore offset reset {facts.group} {queue.topic} --queue {queue.broker_name}/{queue.queue_id} --yes"
        if position is None:
            if bounds.max_offset > bounds.min_offset:
                said = f"the group has never committed there; it has {bounds.max_offset - bounds.min_offset} messages"
                mend = f"a new member begins where its program says (at the end, as a rule); {reset} --to earliest"
                yield warning("offset", queue_name(queue), said, mend)
        elif position.consumer_offset > bounds.max_offset:
            said = (
                f"the group is at {position.consumer_offset}, ahead of the queue, which ends at {bounds.max_offset}: "
                "it gets nothing before that; the topic was made anew, or offsets came from elsewhere"
            )
            yield wrong("offset", queue_name(queue), said, f"{reset} --to latest (or earliest)")
        elif position.consumer_offset < bounds.min_offset and bounds.max_offset > position.consumer_offset:
            lost = bounds.min_offset - position.consumer_offset
            said = (
                f"the group is at {position.consumer_offset}, and the queue begins at {bounds.min_offset}: "
                f"{lost} messages expired before they were consumed"
            )
            yield warning("offset", queue_name(queue), said, "keep messages longer (fileReservedTime), consume faster")


def check_progress(facts: ConsumptionFacts) -> Iterator[Finding]:
    """Who holds a queue in which messages wait must pull, and finish some."""
    for name, info in sorted(facts.answers.items()):
        is_orderly = info.properties.get("PROP_CONSUMEORDERLY") == "true"
        paused = info.paused_queues
        for queue, row in sorted(info.mq_table.items()):
            waiting = facts.bounds[queue].max_offset - row.commit_offset if queue in facts.bounds else 0
            if waiting > 0 and queue.topic in facts.topics and not is_broadcast(facts):
                is_paused = None if paused is None else queue in paused
                yield from progress_of(facts, name, queue, row, waiting, is_orderly=is_orderly, is_paused=is_paused)


def is_broadcast(facts: ConsumptionFacts) -> bool:
    return facts.connection is not None and facts.connection.message_model is MessageModel.BROADCASTING


def progress_of(
    facts: ConsumptionFacts,
    member: str,
    queue: MessageQueue,
    row: ProcessQueueInfo,
    waiting: int,
    *,
    is_orderly: bool,
    is_paused: bool | None,
) -> Iterator[Finding]:
    """Judge one queue in which *waiting* messages wait. *is_paused* None: its client does not tell."""
    where = queue_name(queue)
    stacks = f"mqcore group running {facts.group} {member} --stacks"
    silent_ms = facts.now_ms - row.last_pull_timestamp if row.last_pull_timestamp > 0 else 0
    before = None if facts.before is None else facts.before.offsets.get(queue)
    stands = before is not None and before == row.commit_offset
    perhaps = " or it is paused in the program," if is_paused is None else ""
    if is_paused:
        said = f"{member} is paused in the program: it pulls nothing; {waiting} messages wait"
        yield wrong("progress", where, said, "resume it in the program: it says itself that it is paused")
    elif is_orderly and not row.locked:
        said = f"{member} consumes in order and has not got the queue's lock; {waiting} messages wait"
        yield wrong("progress", where, said, "wait for a lock that another member left (60 s at most)")
    elif silent_ms > SILENT_MS:
        said = f"{member} pulled last {silent_ms // 1000} s ago: it is {'paused or ' if perhaps else ''}stuck; "
        mend = f"{'resume it in the program, or ' if perhaps else ''}see where it stands: {stacks}"
        yield wrong("progress", where, f"{said}{waiting} messages wait", mend)
    elif stands and facts.before is not None:
        passed_s = (facts.now_ms - facts.before.at_ms) / 1000
        if row.cached_msg_count:
            said = f"{member} has {row.cached_msg_count} messages of it and finished none in {passed_s:.0f} s"
            mend = f"its handler is slow or hangs,{perhaps} see where it stands: {stacks}"
            yield warning("progress", where, said, mend)
        else:
            said = f"{member} holds it, has none of its messages, and did not move in {passed_s:.0f} s; {waiting} wait"
            mend = f"its pulls are refused (see its log),{perhaps} see where it stands: {stacks}"
            yield wrong("progress", where, said, mend)
    elif row.cached_msg_count and 0 < row.last_consume_timestamp < facts.now_ms - SLOW_MS:
        age_s = (facts.now_ms - row.last_consume_timestamp) // 1000
        said = f"{member} has {row.cached_msg_count} messages of it and began the last one {age_s} s ago"
        yield warning("progress", where, said, f"its handler is slow or hangs: {stacks}")


def check_lag(facts: ConsumptionFacts) -> Iterator[Finding]:
    """How far behind the group is."""
    for topic in () if is_broadcast(facts) else facts.topics:
        behind = facts.lag(topic)
        if behind:
            times = [facts.positions[queue].last_timestamp for queue in facts.queues(topic) if queue in facts.positions]
            oldest = min((time for time in times if time > 0), default=0)
            since = f"; it is at messages of {(facts.now_ms - oldest) // 1000} s ago" if oldest else ""
            mend = f"watch whether that shrinks: mqcore lag {facts.group} {topic} --watch"
            yield warning("lag", topic, f"behind by {behind} messages{since}", mend)
        elif any(queue in facts.positions for queue in facts.queues(topic)):
            yield ok("lag", topic, "everything is consumed")


def check_failures(facts: ConsumptionFacts) -> Iterator[Finding]:
    """What failed waits to be tried again, and ends in the dead letters."""
    for name, info in sorted(facts.answers.items()):
        for topic, row in sorted(info.status_table.items()):
            if row.consume_failed_msgs and (topic in facts.topics or topic == retry_topic(facts.group)):
                said = f"{name} failed with {row.consume_failed_msgs} messages in the last hour"
                yield warning("failures", topic, said, "see its log for what its handler raised")
    waiting = facts.lag(retry_topic(facts.group))
    if waiting or facts.retry_times:
        tried = f", the next one for the {facts.retry_times}. time" if facts.retry_times else ""
        said = f"{waiting} failed messages wait to be tried again{tried}; more may wait for their delay level"
        mend = f"mqcore explain {facts.group} MESSAGE-ID tells of one"
        yield warning("retries", facts.group, said, mend)
    dead = [facts.bounds[queue] for queue in facts.queues(dlq_topic(facts.group))]
    count = sum(row.max_offset - row.min_offset for row in dead)
    if count:
        said = f"{count} messages were given up after all their retries"
        mend = f"mqcore dlq list {facts.group}, and resend what can succeed now"
        yield warning("dead letters", facts.group, said, mend)
    else:
        yield ok("dead letters", facts.group, "none")


CHECKS: Final[tuple[Check, ...]] = (
    check_topics, check_group, check_members, check_broadcast, check_subscriptions, check_holders, check_offsets,
    check_progress, check_lag, check_failures,
)  # fmt: skip


def explain(facts: ConsumptionFacts) -> list[Finding]:
    """Return what all checks find."""
    return [finding for check in CHECKS for finding in check(facts)]
