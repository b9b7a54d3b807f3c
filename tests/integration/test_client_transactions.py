"""Halves, outcomes and answers to questions are on the wire what a broker expects.

How Apache's brokers act on them is in tests/interop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from mqcore import aio
from mqcore.client import Client
from mqcore.client.model.transaction import TransactionState
from mqcore.client.produce.transactions import TransactionQuestions
from mqcore.client.telemetry.producer_hooks import EndTransactionContext, ProducerHook
from mqcore.codes import RequestCode, ResponseCode, SysFlag
from mqcore.errors import ArgumentError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_request
from mqcore.protocol.message import MessageExt, decode_properties
from mqcore.protocol.message_decoder import encode_message
from mqcore.protocol.message_id import HostAddress
from tests.integration.client_helpers import eventually
from tests.integration.told_brokers import ToldBroker, ToldCluster, told_cluster
from tests.waiting import wait_until

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


@pytest.fixture
async def cluster() -> AsyncIterator[ToldCluster]:
    async with told_cluster("only") as cluster:
        yield cluster


@pytest.fixture
def broker(cluster: ToldCluster) -> ToldBroker:
    return cluster.brokers[0]


@pytest.fixture
async def mq(cluster: ToldCluster) -> AsyncIterator[aio.Client]:
    async with aio.Client(cluster.address) as client:
        yield client


def message(**more: Any) -> aio.Message:
    return aio.Message("T", b"body", keys=["k"], **more)


async def never(half: aio.ReceivedMessage) -> TransactionState:
    raise AssertionError(f"nobody should have asked about {half}")


async def one_end(broker: ToldBroker) -> tuple[RemotingCommand, dict[str, Any]]:
    """The only END_TRANSACTION that the broker gets."""
    await eventually(lambda: broker.of(RequestCode.END_TRANSACTION), "the end of the transaction")
    (command,) = broker.of(RequestCode.END_TRANSACTION)
    (values,) = broker.values(RequestCode.END_TRANSACTION)
    return command, values


@pytest.mark.parametrize(("outcome", "sent"), [(COMMIT, 8), (ROLLBACK, 12), (UNKNOWN, 0), (None, 0)])
async def test_the_outcome_is_told_to_the_broker(
    mq: aio.Client, broker: ToldBroker, outcome: TransactionState | None, sent: int
) -> None:
    executed: list[tuple[aio.Message, aio.SendReceipt]] = []

    async def execute(half: aio.Message, receipt: aio.SendReceipt) -> TransactionState | None:
        assert not broker.of(RequestCode.END_TRANSACTION)
        executed.append((half, receipt))
        return outcome

    given = message()
    async with mq.transaction_producer("P", never) as producer:
        receipt = await producer.send_in_transaction(given, execute)
        command, values = await one_end(broker)
    assert [half for half, _ in executed] == [given]
    assert receipt.state == (outcome or UNKNOWN)
    assert command.is_oneway
    assert command.remark is None
    assert values == {
        "producer_group": "P",
        "tran_state_table_offset": 1,
        "commit_log_offset": 1001,
        "commit_or_rollback": sent,
        "from_transaction_check": False,
        "msg_id": receipt.msg_id,
        "transaction_id": None,
        "bname": "only",
        "topic": "T",
    }


async def test_a_half_says_that_it_is_one_and_whose(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.transaction_producer("P", never) as producer:
        await producer.send_in_transaction(message(delay_level=3), lambda half, receipt: COMMIT)
    (values,) = broker.values(RequestCode.SEND_MESSAGE_V2)
    properties = decode_properties(values["properties"])
    assert (properties["TRAN_MSG"], properties["PGROUP"], properties["KEYS"]) == ("true", "P", "k")
    assert "DELAY" not in properties
    assert values["sys_flag"] & SysFlag.TRANSACTION_PREPARED


async def test_what_the_local_transaction_raises_leaves_its_outcome_open(mq: aio.Client, broker: ToldBroker) -> None:
    def execute(half: aio.Message, receipt: aio.SendReceipt) -> TransactionState:
        raise ValueError("no connection to the database")

    async with mq.transaction_producer("P", never) as producer:
        receipt = await producer.send_in_transaction(message(), execute)
        command, values = await one_end(broker)
    assert (receipt.state, values["commit_or_rollback"]) == (UNKNOWN, 0)
    assert command.remark == "executeLocalTransactionBranch exception: ValueError: no connection to the database"


async def test_a_half_that_is_not_safe_is_rolled_back_and_nothing_executed(mq: aio.Client, broker: ToldBroker) -> None:
    broker.code = ResponseCode.FLUSH_DISK_TIMEOUT

    def execute(half: aio.Message, receipt: aio.SendReceipt) -> TransactionState:
        raise AssertionError("executed")

    async with mq.transaction_producer("P", never) as producer:
        receipt = await producer.send_in_transaction(message(), execute)
        _, values = await one_end(broker)
    assert (receipt.state, receipt.status) == (ROLLBACK, aio.SendStatus.FLUSH_DISK_TIMEOUT)
    assert values["commit_or_rollback"] == 12


async def test_an_outcome_that_cannot_be_told_is_left_to_the_broker_s_question(
    mq: aio.Client, broker: ToldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with mq.transaction_producer("P", never) as producer:

        async def execute(half: aio.Message, receipt: aio.SendReceipt) -> TransactionState:
            await broker.server.stop()
            remoting = mq.instance.remoting
            await eventually(lambda: remoting.connection_of(broker.server.address) is None, "the end of the connection")
            return COMMIT

        receipt = await producer.send_in_transaction(message(), execute)
    assert receipt.state is COMMIT
    assert "outcome of a transaction not sent, the broker will ask" in caplog.text


# Questions.


async def ask(broker: ToldBroker, client_id: str, group: str = "P", unique_id: str = "ID") -> None:
    """Send a broker's question about a half that lies at 4711."""
    await eventually(lambda: client_id in broker.clients, "a heart-beat")
    properties = {"PGROUP": group, "UNIQ_KEY": unique_id, "TRAN_MSG": "true", "TRANSACTION_CHECK_TIMES": "1"}
    half = MessageExt(
        "T", b"body", properties=properties, physical_offset=4711, store_host=HostAddress("127.0.0.1", 10911)
    )
    fields = encode_request(
        RequestCode.CHECK_TRANSACTION_STATE,
        tran_state_table_offset=17,
        commit_log_offset=4711,
        msg_id=unique_id,
        transaction_id=unique_id,
        offset_msg_id=half.offset_msg_id,
    )
    command = RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, ext_fields=fields, body=encode_message(half))
    broker.clients[client_id].invoke_oneway(command)


def plain_check(half: aio.ReceivedMessage) -> TransactionState:
    assert threading.current_thread() is not threading.main_thread()
    assert (half.topic, half.body, half.msg_id) == ("T", b"body", "ID")
    return COMMIT


async def async_check(half: aio.ReceivedMessage) -> TransactionState:
    await asyncio.sleep(0)
    return COMMIT


@pytest.mark.parametrize("check", [plain_check, async_check])
async def test_a_question_is_answered_to_the_broker_that_asked(
    mq: aio.Client,
    broker: ToldBroker,
    check: Callable[[aio.ReceivedMessage], TransactionState | Awaitable[TransactionState]],
) -> None:
    async with mq.transaction_producer("P", check) as producer:
        await producer.queues("T")
        await mq.instance.heartbeat()
        await ask(broker, mq.client_id)
        command, values = await one_end(broker)
    assert command.is_oneway
    assert values == {
        "producer_group": "P",
        "tran_state_table_offset": 17,
        "commit_log_offset": 4711,
        "commit_or_rollback": 8,
        "from_transaction_check": True,
        "msg_id": "ID",
        "transaction_id": "ID",
        "bname": None,
        "topic": "T",
    }


async def test_a_check_that_raises_lets_the_broker_ask_again(mq: aio.Client, broker: ToldBroker) -> None:
    async def check(half: aio.ReceivedMessage) -> TransactionState:
        raise ValueError("not now")

    async with mq.transaction_producer("P", check) as producer:
        await producer.queues("T")
        await mq.instance.heartbeat()
        await ask(broker, mq.client_id)
        command, values = await one_end(broker)
    assert values["commit_or_rollback"] == 0
    assert command.remark == "checkLocalTransactionState Exception: ValueError: not now"


async def test_questions_for_nobody_or_without_sense_are_passed_over(
    mq: aio.Client, broker: ToldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with mq.transaction_producer("P", async_check) as producer:
        await producer.queues("T")
        await mq.instance.heartbeat()
        await ask(broker, mq.client_id, group="Somebody")
        fields = {"tranStateTableOffset": "1", "commitLogOffset": "2"}
        broken = RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, ext_fields=fields, body=b"broken")
        broker.clients[mq.client_id].invoke_oneway(broken)
        await ask(broker, mq.client_id)
        _, values = await one_end(broker)
    assert values["msg_id"] == "ID"
    assert "a broker asks about a transaction of a group that is not here group=Somebody" in caplog.text


async def test_checks_run_as_many_at_once_as_allowed_and_no_more_wait_than_allowed(
    mq: aio.Client, broker: ToldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    running: list[str] = []
    go_on = asyncio.Event()

    async def check(half: aio.ReceivedMessage) -> TransactionState:
        running.append(half.msg_id)
        await go_on.wait()
        return COMMIT

    async with mq.transaction_producer("P", check, check_concurrency=2, check_queue_max=3) as producer:
        await producer.queues("T")
        await mq.instance.heartbeat()
        for number in range(5):
            await ask(broker, mq.client_id, unique_id=f"ID{number}")
        await eventually(lambda: "too many questions about transactions" in caplog.text, "the limit")
        await eventually(lambda: running == ["ID0", "ID1"], "two checks at once")
        go_on.set()
        await eventually(lambda: len(broker.of(RequestCode.END_TRANSACTION)) == 3, "three answers")
        assert running == ["ID0", "ID1", "ID2"]


async def test_closing_ends_checks_under_way(mq: aio.Client, broker: ToldBroker) -> None:
    started = asyncio.Event()
    ended: list[str] = []

    async def check(half: aio.ReceivedMessage) -> TransactionState:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return COMMIT

    async with mq.transaction_producer("P", check) as producer:
        await producer.queues("T")
        await mq.instance.heartbeat()
        await ask(broker, mq.client_id)
        await started.wait()
    assert ended == ["cancelled"]


class Outcomes(ProducerHook):
    """Notes the outcomes that are told."""

    def __init__(self) -> None:
        self.seen: list[EndTransactionContext] = []

    async def end_transaction(self, context: EndTransactionContext) -> None:
        self.seen.append(context)


async def test_hooks_see_outcomes_and_answers(mq: aio.Client, broker: ToldBroker) -> None:
    outcomes = Outcomes()
    async with mq.transaction_producer("P", async_check) as producer:
        producer.add_hook(outcomes)
        receipt = await producer.send_in_transaction(message(), lambda half, receipt: ROLLBACK)
        await mq.instance.heartbeat()
        await ask(broker, mq.client_id)
        await eventually(lambda: len(outcomes.seen) == 2, "both outcomes")
    told, answered = outcomes.seen
    assert (told.msg_id, told.state, told.from_check, told.topic) == (receipt.msg_id, ROLLBACK, False, "T")
    assert (answered.msg_id, answered.state, answered.from_check) == ("ID", COMMIT, True)
    assert told.properties["KEYS"] == "k"


async def test_a_check_must_be_callable(mq: aio.Client) -> None:
    with pytest.raises(ArgumentError, match="check is None, wanted a function"):
        mq.transaction_producer("P", None)  # type: ignore[arg-type]


async def test_the_plain_client_runs_the_local_transaction_in_the_thread_that_sends(
    cluster: ToldCluster, broker: ToldBroker
) -> None:
    threads: list[str] = []

    def execute(half: aio.Message, receipt: aio.SendReceipt) -> TransactionState:
        threads.append(threading.current_thread().name)
        return COMMIT

    def use() -> TransactionState:
        with Client(cluster.address) as mq, mq.transaction_producer("P", plain_check) as producer:
            state = producer.send_in_transaction(message(), execute).state
            threads.append(threading.current_thread().name)
            with pytest.raises(ArgumentError):
                producer.send_in_transaction(aio.Message("", b"x"), execute)
            wait_until(lambda: broker.of(RequestCode.END_TRANSACTION), 30, "the outcome")
            return state

    assert await asyncio.to_thread(use) is COMMIT
    assert threads[0] == threads[1]


# mqcore's broker, which keeps no transactions yet.


async def test_the_plain_producer_is_there_for_the_brokers_questions(cluster: ToldCluster) -> None:
    def use() -> tuple[list[str], list[str]]:
        with Client(cluster.address) as mq:
            known = mq._inner.instance.shared(TransactionQuestions).producers
            with mq.transaction_producer("G", plain_check):
                while_open = list(known)
            return while_open, list(known)

    assert await asyncio.to_thread(use) == (["G"], [])
