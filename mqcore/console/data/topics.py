"""Topics: which there are, what their queues hold, who reads them, and a test message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mqcore.client.admin import Admin
from mqcore.client.asynchronous import Client
from mqcore.client.model.messages import Message
from mqcore.client.model.receipt import SendReceipt
from mqcore.protocol.bodies import TopicOffset
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic
from mqcore.protocol.topic_config import TopicConfig

TEST_GROUP = "mqcore_console"


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic and what kind it is: ``""``, ``retry``, ``dead letters`` or ``system``."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """One topic: its *queues*, its configuration by broker address, and the groups that read it."""

    name: str
    kind: str
    queues: Mapping[MessageQueue, TopicOffset]
    configs: Mapping[str, TopicConfig]
    groups: Sequence[str]

    @property
    def messages(self) -> int:
        return sum(row.max_offset - row.min_offset for row in self.queues.values())

    @property
    def newest_ms(self) -> int:
        return max((row.last_update_timestamp for row in self.queues.values()), default=0)


async def topic_names(admin: Admin) -> list[TopicName]:
    """Return all topics by name, those of applications first."""
    info = await admin.cluster_info()
    clusters = set(info.cluster_addr_table)
    own = clusters | set(info.broker_addr_table) | {f"{name}_REPLY_TOPIC" for name in clusters}
    found = [TopicName(name, kind_of(name, own)) for name in await admin.list_topics()]
    return sorted(found, key=lambda topic: (topic.kind != "", topic.name))


def kind_of(name: str, own: set[str] | frozenset[str] = frozenset()) -> str:
    """Return the kind of a topic; *own* are the topics that clusters and brokers have under their own names."""
    if is_retry_topic(name):
        return "retry"
    if is_dlq_topic(name):
        return "dead letters"
    return "system" if is_system_topic(name, own) else ""


async def topic_detail(admin: Admin, name: str) -> TopicDetail:
    """Return what there is to know of a topic. Raises NoRouteError when nobody has it."""
    queues = await admin.offsets(name)
    return TopicDetail(
        name, kind_of(name), queues, await admin.topic_configs(name), await admin.topic_groups(name)
    )  # fmt: skip


async def send_test(mq: Client, message: Message, queue: MessageQueue | None) -> SendReceipt:
    """Send one message, to *queue* or to any. Raises MQError, or ArgumentError for what can be no message."""
    async with mq.producer(TEST_GROUP) as producer:
        return await producer.send(message, queue=queue)
