"""The steps of a transaction, gone through by both faces: in an event loop, and in a thread that has none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mqcore.client import Message, MessageQueue
from mqcore.client.errors import ClientStateError
from mqcore.client.model.receipt import SendReceipt, SendStatus
from mqcore.client.model.transaction import TransactionReceipt, TransactionState
from mqcore.client.plain.calls import run_here
from mqcore.client.produce.transactions import Execute, in_transaction
from mqcore.errors import RemotingTimeoutError

Told = list[tuple[TransactionState, BaseException | None]]
Run = Callable[[Coroutine[Any, Any, TransactionReceipt]], TransactionReceipt]

MESSAGE = Message("Orders", b"{}")
BOTH = pytest.mark.parametrize("run", [pytest.param(asyncio.run, id="loop"), pytest.param(run_here, id="thread")])


def told(run: Run, execute: Execute, status: SendStatus = SendStatus.SEND_OK) -> Told:
    """Go through a transaction whose half is stored with *status*; return what the broker is told."""
    found: Told = []

    async def send_half() -> SendReceipt:
        return SendReceipt(status, "ID", "", MessageQueue("Orders", "broker-a", 0), 7)

    async def end(receipt: SendReceipt, state: TransactionState, error: BaseException | None) -> TransactionReceipt:
        found.append((state, error))
        return TransactionReceipt(receipt.status, receipt.msg_id, "", receipt.queue, receipt.offset, state=state)

    assert run(in_transaction(MESSAGE, execute, send_half, end)).state is found[-1][0]
    return found


@BOTH
@pytest.mark.parametrize("state", [*TransactionState, None])
def test_the_broker_is_told_what_the_local_transaction_returns(run: Run, state: TransactionState | None) -> None:
    assert told(run, lambda message, receipt: state) == [(state or TransactionState.UNKNOWN, None)]


@BOTH
@pytest.mark.parametrize("status", [status for status in SendStatus if status is not SendStatus.SEND_OK])
def test_what_is_not_stored_safely_is_rolled_back_and_nothing_is_executed(run: Run, status: SendStatus) -> None:
    def execute(message: Message, receipt: SendReceipt) -> TransactionState:
        raise AssertionError("not to be called")

    assert told(run, execute, status) == [(TransactionState.ROLLBACK, None)]


@BOTH
@pytest.mark.parametrize("error", [OSError("no space"), StopIteration(1), ValueError("no state")])
def test_what_the_local_transaction_raises_leaves_its_outcome_unknown(run: Run, error: Exception) -> None:
    def execute(message: Message, receipt: SendReceipt) -> TransactionState:
        raise error

    assert told(run, execute) == [(TransactionState.UNKNOWN, error)]


@BOTH
def test_what_is_no_state_leaves_the_outcome_unknown(run: Run) -> None:
    ((state, error),) = told(run, lambda message, receipt: 5)  # type: ignore[arg-type,return-value]
    assert state is TransactionState.UNKNOWN
    assert isinstance(error, ValueError)


@BOTH
def test_a_half_that_is_not_sent_is_an_error_of_the_send(run: Run) -> None:
    async def send_half() -> SendReceipt:
        raise RemotingTimeoutError("no answer")

    async def end(*_: object) -> TransactionReceipt:
        raise AssertionError("not to be called")

    with pytest.raises(RemotingTimeoutError):
        run(in_transaction(MESSAGE, lambda message, receipt: None, send_half, end))


async def waits(message: Message, receipt: SendReceipt) -> TransactionState:
    await asyncio.sleep(0)
    return TransactionState.COMMIT


def test_an_async_transaction_is_waited_for_in_a_loop_and_refused_in_a_thread() -> None:
    assert told(asyncio.run, waits) == [(TransactionState.COMMIT, None)]
    ((state, error),) = told(run_here, waits)
    assert state is TransactionState.UNKNOWN
    assert isinstance(error, ClientStateError)
    assert "no event loop here" in str(error)
