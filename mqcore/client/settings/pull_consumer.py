"""The settings of a pull consumer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from mqcore.client.model.rebalance import Strategy
from mqcore.client.settings.checked import Checked, row
from mqcore.client.settings.classes import ConsumeFromWhere, ConsumerSettings, MessageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerSettings(Checked):
    """Source: RocketMQ client/consumer/DefaultLitePullConsumer.java."""

    auto_commit: bool = field(default=True, metadata=row(doc="commit what was polled, from time to time"))
    auto_commit_interval_s: float = field(default=5.0, metadata=row(0.05, 3600, "how often, at most, a poll commits"))
    poll_timeout_s: float = field(default=5.0, metadata=row(0, 3600, "how long a poll without a time of its own waits"))
    pull_batch_size: int = field(default=10, metadata=row(1, 1024, "messages of one pull, and so of one poll"))
    pull_threshold_for_all: int = field(default=10_000, metadata=row(1, 6_553_500, "messages that wait to be polled"))
    pull_threshold_for_queue: int = field(default=1000, metadata=row(1, 65535, "cached messages of one queue"))
    pull_threshold_size_for_queue_mib: int = field(default=100, metadata=row(1, 1024, "cached bytes of one queue"))
    max_span: int = field(default=2000, metadata=row(1, 65535, "last minus first cached offset of a queue"))
    from_where: ConsumeFromWhere | str = field(
        default=ConsumeFromWhere.LATEST, metadata=row(doc="earliest, latest, timestamp or Java's name")
    )
    from_timestamp: datetime | float | None = field(
        default=None, metadata=row(doc="for TIMESTAMP; half an hour before the start when absent")
    )
    message_model: MessageModel | str = field(
        default=MessageModel.CLUSTERING,
        metadata=row(doc="clustering: the group shares the messages; broadcasting: each member gets all"),
    )
    strategy: str | Strategy = field(
        default="AVG", metadata=row(doc="as of a consumer; all members of a group must use the same")
    )
    hold_timeout_s: float = field(
        default=20.0, metadata=row(0.1, 600, "how long the broker may hold a pull that finds nothing")
    )
    pull_timeout_s: float = field(default=30.0, metadata=row(0.2, 1200, "must be longer than the hold"))
    rebalance_interval_s: float = field(
        default=20.0, metadata=row(0.05, 3600, "how often the group's queues are divided anew, besides each change")
    )
    topic_check_interval_s: float = field(
        default=30.0, metadata=row(0.05, 3600, "how often watched topics are compared with their routes")
    )
    offsets_dir: Path | str | None = field(
        default=None, metadata=row(doc="broadcasting: keep offsets in files below this directory")
    )
    trace: bool = field(default=False, metadata=row(doc="write records of what is pulled to the trace topic"))
    trace_topic: str | None = field(default=None, metadata=row(doc="RMQ_SYS_TRACE_TOPIC when absent"))

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        shared = self.as_member()
        object.__setattr__(self, "from_where", shared.from_where)
        object.__setattr__(self, "message_model", shared.message_model)

    def as_member(self) -> ConsumerSettings:
        """Return what a pull consumer has in common with every member of a group."""
        return ConsumerSettings(
            from_where=self.from_where,
            from_timestamp=self.from_timestamp,
            message_model=self.message_model,
            strategy=self.strategy,
            pull_batch_size=self.pull_batch_size,
            pull_threshold_for_queue=self.pull_threshold_for_queue,
            pull_threshold_size_for_queue_mib=self.pull_threshold_size_for_queue_mib,
            max_span=self.max_span,
            hold_timeout_s=self.hold_timeout_s,
            pull_timeout_s=self.pull_timeout_s,
            rebalance_interval_s=self.rebalance_interval_s,
            offsets_dir=self.offsets_dir,
        )
