"""Java and Python members of a broadcasting group go on where the other stopped: their offset files are alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mqcore import aio
from tests.integration.client_helpers import eventually, send_numbers
from tests.rigs import JavaDriver, RunningBroker
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 4


class Both:
    """A member that is now a Java and now a Python process, with the files of one."""

    def __init__(self, broker: RunningBroker, java: JavaDriver, topic: str) -> None:
        self._name_server = broker.name_server
        self._java = java
        self._topic = topic
        self._group = f"G_{topic}"
        self.client_id = ""

    @property
    def offsets_dir(self) -> Path:
        """Where Java keeps its files: below user.home, which the driver sets."""
        return self._java.directory / ".rocketmq_offsets"

    def as_java(self, count: int) -> int:
        """Consume *count* messages as Java and leave; return how many came."""
        with self._java.consumer(self._name_server, self._topic, self._group, broadcasting=1) as consumer:
            self.client_id = consumer.client_id
            wait_until(lambda: consumer.count() >= count, 120, f"{count} messages")
            return len(consumer.stop())

    async def as_python(self, wanted: range) -> Sequence[int]:
        """Consume as Python, with Java's client id, until all *wanted* numbers have come, and leave."""
        seen: list[int] = []

        async def handle(message: aio.ReceivedMessage) -> None:
            seen.append(int(message.body))

        client_ip = self.client_id.partition("@")[0]
        async with (
            aio.Client(self._name_server, client_ip=client_ip) as mq,
            mq.consumer(
                self._group,
                self._topic,
                handler=handle,
                message_model="broadcasting",
                from_where="earliest",
                offsets_dir=self.offsets_dir,
            ),
        ):
            await eventually(lambda: set(wanted) <= set(seen), "the messages", deadline_s=60)
        return seen


async def test_each_goes_on_where_the_other_stopped(mq_broker: RunningBroker, java: JavaDriver, topic: str) -> None:
    member = Both(mq_broker, java, topic)
    async with aio.Client(mq_broker.name_server) as mq:
        await send_numbers(mq, topic, range(40))
        assert member.as_java(40) == 40
        await send_numbers(mq, topic, range(40, 80))
        assert sorted(await member.as_python(range(40, 80))) == list(range(40, 80))
        (path,) = member.offsets_dir.glob(f"*/G_{topic}/offsets.json")
        assert path.parent.parent.name == member.client_id
        assert path.with_name("offsets.json.bak").exists()
        await send_numbers(mq, topic, range(80, 100))
        assert member.as_java(20) == 20
