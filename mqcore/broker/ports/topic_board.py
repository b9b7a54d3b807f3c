"""What the workers know of topics and groups."""

from __future__ import annotations

from typing import Protocol

from mqcore.protocol.bodies import TopicConfig


class TopicBoard(Protocol):
    """What the send and pull workers know of topics."""

    def publish(self, config: TopicConfig, sendable: bool, multi_tag: bool) -> None:
        """Show *config*. *sendable*: the send worker may answer ordinary sends to it without asking."""
        ...

    def remove(self, topic: str) -> None: ...

    def bump_all(self) -> None:
        """Make every pull binding stale: a setting has changed that a check may look at."""
        ...

    def bump_topic(self, topic: str) -> None:
        """Make the pull bindings of a topic stale; called once its change is in the tables and on this board."""
        ...

    def bump_group(self, group: str) -> None:
        """Make the pull bindings of a group stale; called once its change is in the tables."""
        ...
