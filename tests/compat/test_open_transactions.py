"""A store goes from Apache's broker to ours and back with its transactions open: each ends once, in whatever broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore import aio
from mqcore.client.model.transaction import TransactionState
from mqcore.protocol.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from mqcore.store.log.record import decode
from tests.compat import apache_requests as requests
from tests.integration.client_helpers import eventually
from tests.rigs import ApacheServer, MqcoreBroker, RunningBroker, maven, wire

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
TELLS: dict[TransactionState, Callable[[aio.Message, aio.SendReceipt], TransactionState]] = {
    COMMIT: lambda half, receipt: COMMIT,
    ROLLBACK: lambda half, receipt: ROLLBACK,
    UNKNOWN: lambda half, receipt: UNKNOWN,
}
TOPIC, GROUP = "Transactions", "P_Transactions"
PROPERTIES = {"transactionCheckInterval": "1000", "transactionTimeOut": "500", "transactionCheckMax": "1000"}
DEADLINE_S = 90.0
VERSIONS = ("4.9.8", "5.3.3")
SLOW = 4
"""Seconds for which nobody is to be asked about some: long enough to be put again, and there when the store goes."""


class Producer:
    """Transactions at one broker. ``asked`` counts the questions by body; *answers* says what is answered to them."""

    def __init__(self, broker: RunningBroker, answers: dict[bytes, TransactionState]) -> None:
        self._broker = broker
        self.answers = answers
        self.asked: Counter[bytes] = Counter()

    def check(self, half: aio.ReceivedMessage) -> TransactionState | None:
        self.asked[half.body] += 1
        return self.answers.pop(half.body, None)

    async def open(self, **states: TransactionState) -> None:
        """Send a message for each, by name, and end it, or not, as it says. An immune one is not asked about soon."""
        async with aio.Client(self._broker.name_server) as mq, mq.transaction_producer(GROUP, self.check) as producer:
            for name, state in states.items():
                properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": str(SLOW)} if "immune" in name else {}
                message = aio.Message(TOPIC, name.encode(), properties=properties)
                await producer.send_in_transaction(message, TELLS[state])

    async def answer(self, *rest: str) -> None:
        """Be there until what has an answer has been given it, and until each of *rest* has been asked about."""
        async with aio.Client(self._broker.name_server) as mq, mq.transaction_producer(GROUP, self.check) as producer:
            await producer.queues(TOPIC)
            await mq.instance.heartbeat()
            await eventually(
                lambda: not self.answers and all(self.asked[body.encode()] for body in rest),
                f"questions about {self.answers} and {rest}", DEADLINE_S,
            )  # fmt: skip

    async def delivered(self, *bodies: str) -> None:
        """Wait until *bodies* lie in the topic, each once and nothing else."""
        async with aio.Client(self._broker.name_server) as mq:
            found: list[bytes] = []
            async with asyncio.timeout(DEADLINE_S):
                while len(found) < len(bodies):
                    found = []
                    for queue in await mq.queues(TOPIC):
                        found += [message.body for message in (await mq.pull(queue, 0)).messages]
                    await asyncio.sleep(0.05)
        assert sorted(found) == sorted(body.encode() for body in bodies)


StartOne = Callable[[], RunningBroker]


def ours(store: Path) -> StartOne:
    return lambda: MqcoreBroker(store, PROPERTIES)


def apache(store: Path, version: str) -> StartOne:
    # Release 5 gathers op messages in memory for so long, and forgets them when it ends.
    return lambda: ApacheServer(version, store, PROPERTIES | {"transactionOpBatchInterval": "100"})


async def await_ops(broker: RunningBroker, *bodies: str) -> None:
    """Wait until op messages say that *bodies* are done with: release 5 writes them later, all others at once."""
    if broker.apache_version.startswith("5"):
        wanted = {body.encode() for body in bodies}
        await eventually(lambda: wanted <= ended(broker), f"op messages of {bodies}", DEADLINE_S)


def ended(broker: RunningBroker) -> set[bytes]:
    """The bodies of the half messages whose last copies are done with."""
    address = broker.broker_address
    ops, halves = (
        [decode(record, 0) for record in requests.split_records(requests.pull_all(address, topic, 0))]
        for topic in (TRANS_OP_HALF_TOPIC, TRANS_HALF_TOPIC)
    )
    numbers = {int(number) for op in ops for number in op.body.decode().split(",") if number}
    last = {half.body: half.queue_offset for half in halves}
    return {body for body, number in last.items() if number in numbers}


async def play(first: StartOne, second: StartOne) -> None:
    with first() as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=2)
        producer = Producer(broker, {b"asked": COMMIT})
        await producer.open(
            committed=COMMIT, rolled_back=ROLLBACK, asked=UNKNOWN, open_commit=UNKNOWN, open_rollback=UNKNOWN,
            immune=UNKNOWN,
        )  # fmt: skip
        # Whatever is open has been put behind the others again before the store goes.
        await producer.answer("asked", "open_commit", "open_rollback")
        await producer.delivered("committed", "asked")
        await await_ops(broker, "committed", "rolled_back", "asked")
        broker.stop()
    with second() as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=2)
        producer = Producer(broker, {b"open_commit": COMMIT, b"open_rollback": ROLLBACK, b"immune": COMMIT})
        await producer.open(later=UNKNOWN, later_committed=COMMIT)
        await producer.answer("open_commit", "open_rollback", "immune", "later")
        await producer.delivered("committed", "asked", "open_commit", "immune", "later_committed")
        assert {b"committed", b"rolled_back", b"asked", b"later_committed"} & set(producer.asked) == set()
        await await_ops(broker, "open_commit", "open_rollback", "immune", "later_committed")
        broker.stop()


async def finish(broker: StartOne) -> None:
    """The one that is left is asked about in the next broker, and nothing else."""
    with broker() as running:
        producer = Producer(running, {b"later": COMMIT})
        await producer.answer("later")
        await producer.delivered("committed", "asked", "open_commit", "immune", "later_committed", "later")
        assert set(producer.asked) == {b"later"}


async def test_a_store_of_apache_s_goes_on_with_its_transactions_here(tmp_path: Path) -> None:
    store = tmp_path / "store"
    await play(apache(store, "4.9.8"), ours(store))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_store_of_apache_s_goes_on_with_its_transactions_here_and_back(tmp_path: Path, version: str) -> None:
    store = tmp_path / "store"
    await play(apache(store, version), ours(store))
    await finish(apache(store, version))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_store_of_ours_goes_on_with_its_transactions_at_apache_s_and_back(tmp_path: Path, version: str) -> None:
    store = tmp_path / "store"
    await play(ours(store), apache(store, version))
    await finish(ours(store))
