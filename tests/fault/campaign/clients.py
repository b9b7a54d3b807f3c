"""The clients of a campaign, in a process of their own: producers, readers, a group, and who looks at its offsets.

Run with the name server, the file that what they see is written to, the topic, and the brokers' addresses. They end
with their standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mqcore import aio, clock
from mqcore.client.consume.polled.pull_api import PullStatus
from mqcore.client.session.failures import is_not_stored
from mqcore.codes import RequestCode
from mqcore.errors import MQError
from tests.fault.campaign.evidence import GroupOffset, Log, Outcome, Read, Send, message_id

PRODUCERS: Final = 2
SEND_PAUSE_S: Final = 0.02
SEND_TIMEOUT_S: Final = 3.0
RETRY_PAUSE_S: Final = 0.05
PULL_WAIT_S: Final = 1.0
LOOK_PAUSE_S: Final = 0.2
GROUP: Final = "campaign"
ASK_TIMEOUT_S: Final = 1.0


class Clients:
    """Everything that one client process of a campaign does."""

    def __init__(self, mq: aio.Client, topic: str, log: Log, brokers: Sequence[str]) -> None:
        self._mq = mq
        self._topic = topic
        self._log = log
        self._brokers = brokers

    async def run(self) -> None:
        queues = await self._mq.queues(self._topic)
        settings = {"from_where": "earliest", "rebalance_interval_s": 1.0}
        async with (
            self._mq.producer("campaign", send_timeout_s=SEND_TIMEOUT_S) as producer,
            self._mq.consumer(GROUP, self._topic, handler=self._consume, **settings),
            asyncio.TaskGroup() as tasks,
        ):
            for number, queue in itertools.product(range(PRODUCERS), queues):
                tasks.create_task(self._produce(producer, number, queue))
            for queue in queues:
                tasks.create_task(self._read(queue))
            for broker in self._brokers:
                tasks.create_task(self._look(broker, queues))
            print("ready", flush=True)

    async def _produce(self, producer: aio.Producer, number: int, queue: aio.MessageQueue) -> None:
        """Send to one queue, each message once, and wait for its end before the next one."""
        for sequence in itertools.count():
            began_s = clock.monotonic_s()
            outcome, offset, why = Outcome.UNKNOWN, -1, ""
            body = message_id(number, queue.queue_id, sequence).encode()
            try:
                receipt = await producer.send(aio.Message(self._topic, body), queue=queue)
            except MQError as error:
                why = str(error)
                if is_not_stored(error):
                    outcome = Outcome.REFUSED
            else:
                why = receipt.status.name
                if receipt.status is aio.SendStatus.SEND_OK:
                    outcome, offset = Outcome.OK, receipt.offset
            ended_s = clock.monotonic_s()
            self._log.write(Send(number, queue.queue_id, sequence, outcome, offset, began_s, ended_s, why))
            await asyncio.sleep(SEND_PAUSE_S)

    async def _read(self, queue: aio.MessageQueue) -> None:
        """Read a queue from its beginning, whoever the master is."""
        offset = 0
        while True:
            try:
                result = await self._mq.pull(queue, offset, wait_s=PULL_WAIT_S)
            except MQError:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            for message in result.messages:
                self._note("reader", message)
            offset = result.next_offset
            if result.status is PullStatus.OFFSET_ILLEGAL:
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _consume(self, message: aio.ReceivedMessage) -> None:
        self._note(GROUP, message)

    def _note(self, reader: str, message: aio.ReceivedMessage) -> None:
        at_s, place = clock.monotonic_s(), message.ext
        self._log.write(Read(reader, place.queue_id, place.queue_offset, bytes(message.body).decode(), at_s))

    async def _look(self, broker: str, queues: Sequence[aio.MessageQueue]) -> None:
        """Ask a broker, while it leads, where the group has got to."""
        while True:
            for queue in queues:
                with contextlib.suppress(MQError):
                    await self._look_at(broker, queue)
            await asyncio.sleep(LOOK_PAUSE_S)

    async def _look_at(self, broker: str, queue: aio.MessageQueue) -> None:
        api = self._mq.instance.api
        epoch = await self._epoch(broker)
        if epoch:
            offset = await api.query_consumer_offset(broker, GROUP, queue)
            end = await api.max_offset(broker, queue)
            at_s = clock.monotonic_s()
            if offset is not None and await self._epoch(broker) == epoch:
                self._log.write(GroupOffset(epoch, queue.queue_id, offset, end, at_s))

    async def _epoch(self, broker: str) -> int:
        """Return the epoch that a broker leads, 0 if it leads none."""
        answer = await self._mq.instance.api.call(broker, RequestCode.GET_BROKER_EPOCH_CACHE, timeout_s=ASK_TIMEOUT_S)
        return int(json.loads(answer.body).get("term") or 0)


async def main(name_server: str, path: Path, topic: str, *brokers: str) -> None:
    """Work until standard input ends."""
    with path.open("a") as file:
        async with aio.Client(name_server, offset_commit_interval_s=0.5) as mq:
            work = asyncio.create_task(Clients(mq, topic, Log(file), brokers).run())
            end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
            await asyncio.wait((work, end), return_when=asyncio.FIRST_COMPLETED)
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
