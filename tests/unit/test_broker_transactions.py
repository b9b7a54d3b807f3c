"""Open transactions: who is asked about which, when, how often, and that an end that comes late still counts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broker_ports import BrokerRig, MemoryChannel
from hypothesis import given
from hypothesis import strategies as st

from mqcore.broker.ports import PutStatus
from mqcore.broker.services.done_halves import DoneHalvesMap
from mqcore.codes import RemotingFlag, RequestCode, SysFlag
from mqcore.protocol.message import MessageExt
from mqcore.protocol.message_decoder import decode_message
from mqcore.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from mqcore.store.queues.op_numbers import DoneHalves

TIMEOUT_MS, CHECK_MAX = 6_000, 15
GROUP = "producers"
TRANS_GROUP = "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK = SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    made = BrokerRig(tmp_path)
    await made.create_topic("orders")
    await made.heart_beat("", producers=[GROUP])
    return made


async def send_half(rig: BrokerRig, key: str, *, born: int | None = None, **properties: object) -> int:
    """Send a half message and return its queue offset."""
    more = "".join(f"\x02{name}\x01{value}" for name, value in properties.items())
    text = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01U{key}{more}"
    reply = await rig.send("orders", key.encode(), e=2, i=text, g=born or rig.clock(), h=7)
    assert reply.code == 0
    assert reply.ext_fields is not None
    return int(reply.ext_fields["queueOffset"])


def half_at(rig: BrokerRig, queue_offset: int) -> MessageExt:
    return next(
        half for half in rig.store.messages(TRANS_HALF_TOPIC) if half.queue_offset == queue_offset
    )  # the memory store forgets none


async def end(rig: BrokerRig, queue_offset: int, outcome: int = COMMIT) -> None:
    reply = await rig.ask(
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": GROUP, "tranStateTableOffset": queue_offset, "msgId": "U",
            "commitOrRollback": int(outcome), "commitLogOffset": half_at(rig, queue_offset).physical_offset,
        },
    )  # fmt: skip
    assert reply.code == 0


async def check(rig: BrokerRig, after_ms: int = 1) -> float | None:
    """Let time pass and make a round."""
    rig.clock.advance(after_ms)
    return await rig.broker.transactions.check()


def asked(channel: MemoryChannel) -> list[tuple[str, int]]:
    """Body and queue offset of each half message that this client was asked about; forgets them."""
    found = []
    for command in channel.sent:
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        assert command.ext_fields is not None
        found.append((decode_message(command.body).body.decode(), int(command.ext_fields["tranStateTableOffset"])))
    channel.sent.clear()
    return found


def positions(rig: BrokerRig) -> tuple[int | None, int | None]:
    get = rig.offsets.get
    return get(TRANS_GROUP, TRANS_HALF_TOPIC, 0), get(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0)


def bodies(rig: BrokerRig, topic: str, queue_id: int = 0) -> list[str]:
    return [message.body.decode() for message in rig.store.messages(topic, queue_id)]


# Who is asked ------------------------------------------------------------------------------------------------------


async def test_a_producer_is_asked_about_what_is_older_than_the_timeout(rig: BrokerRig) -> None:
    await send_half(rig, "a")
    assert await check(rig, TIMEOUT_MS - 1) is None
    assert asked(rig.client) == []
    await check(rig)
    assert asked(rig.client) == [("a", 1)]
    # The op message that says where it has gone is read in the next round.
    assert positions(rig) == (1, 0)


async def test_the_question_is_rocketmq_s(rig: BrokerRig) -> None:
    await send_half(rig, "a", KEYS="k")
    await check(rig, TIMEOUT_MS)
    (command,) = rig.client.sent
    assert command.flag == RemotingFlag.ONEWAY
    copy = half_at(rig, 1)
    assert command.ext_fields == {
        "tranStateTableOffset": "1", "commitLogOffset": str(copy.physical_offset), "msgId": "Ua", "transactionId": "Ua",
        "offsetMsgId": copy.offset_msg_id,
    }  # fmt: skip
    message = decode_message(command.body)
    assert (message.topic, message.queue_id, message.body, message.flag) == ("orders", 2, b"a", 7)
    assert (message.queue_offset, message.physical_offset) == (1, copy.physical_offset)
    assert (message.born_timestamp, message.born_host) == (half_at(rig, 0).born_timestamp, half_at(rig, 0).born_host)
    assert message.properties == copy.properties
    assert message.properties == half_at(rig, 0).properties | {
        "TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "0",
    }  # fmt: skip


async def test_the_answer_to_the_question_ends_the_transaction(rig: BrokerRig) -> None:
    await send_half(rig, "a")
    await send_half(rig, "b")
    await check(rig, TIMEOUT_MS)
    (_, first), (_, second) = asked(rig.client)
    await end(rig, first, COMMIT)
    await end(rig, second, ROLLBACK)
    for _ in range(3):
        await check(rig, TIMEOUT_MS)
    assert asked(rig.client) == []
    assert bodies(rig, "orders", 2) == ["a"]
    assert positions(rig) == (4, 4)


async def test_what_is_ended_in_time_is_not_asked_about(rig: BrokerRig) -> None:
    for number in range(200):
        await end(rig, await send_half(rig, str(number)), COMMIT if number % 2 else ROLLBACK)
    await check(rig, TIMEOUT_MS)
    # The op position follows a round behind: a table that is saved between the two is safe to begin at.
    assert positions(rig) == (200, 0)
    await check(rig)
    assert asked(rig.client) == []
    assert positions(rig) == (200, 200)


async def test_an_open_transaction_does_not_hide_those_behind_it(rig: BrokerRig) -> None:
    halves = [await send_half(rig, str(number)) for number in range(9)]
    for half in halves[::2]:
        await end(rig, half)
    await check(rig, TIMEOUT_MS)
    assert [body for body, _ in asked(rig.client)] == ["1", "3", "5", "7"]


async def test_the_question_goes_to_one_member_after_the_other(rig: BrokerRig) -> None:
    other = MemoryChannel(port=40_002)
    await rig.heart_beat("", producers=[GROUP], channel=other, client_id="client-2")
    for number in range(4):
        await send_half(rig, str(number))
    await check(rig, TIMEOUT_MS)
    assert (len(asked(rig.client)), len(asked(other))) == (2, 2)


async def test_another_member_is_asked_where_one_has_gone(rig: BrokerRig) -> None:
    other = MemoryChannel(port=40_002)
    await rig.heart_beat("", producers=[GROUP], channel=other, client_id="client-2")
    await send_half(rig, "a")
    rig.client.close()
    rig.core.on_channel_closed(rig.client)
    await check(rig, TIMEOUT_MS)
    assert [body for body, _ in asked(other)] == ["a"]


async def test_who_comes_later_is_asked_in_the_next_round(rig: BrokerRig, caplog: pytest.LogCaptureFixture) -> None:
    await send_half(rig, "a")
    rig.core.on_channel_closed(rig.client)
    await check(rig, TIMEOUT_MS)
    assert "nobody can be asked about transactions group=producers count=1" in caplog.text
    other = MemoryChannel(port=40_002)
    await rig.heart_beat("", producers=[GROUP], channel=other, client_id="client-2")
    await check(rig, TIMEOUT_MS)
    assert asked(other) == [("a", 2)]


# Time ------------------------------------------------------------------------------------------------------------


async def test_a_message_may_say_when_to_ask_first(rig: BrokerRig) -> None:
    await send_half(rig, "slow", CHECK_IMMUNITY_TIME_IN_SECONDS=30)
    await send_half(rig, "usual")
    await check(rig, TIMEOUT_MS)
    assert [body for body, _ in asked(rig.client)] == ["usual"]
    await end(rig, half_at(rig, 3).queue_offset)
    # Rounds in which nobody may be asked do not count.
    for _ in range(CHECK_MAX + 2):
        await check(rig, 1000)
    assert asked(rig.client) == []
    await check(rig, 30_000)
    ((body, place),) = asked(rig.client)
    assert body == "slow"
    assert half_at(rig, place).properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.parametrize("text", ["x", "-1", "3.5"])
async def test_an_immunity_that_is_no_number_is_the_timeout(rig: BrokerRig, text: str) -> None:
    await send_half(rig, "a", CHECK_IMMUNITY_TIME_IN_SECONDS=text)
    await check(rig, TIMEOUT_MS - 1)
    assert asked(rig.client) == []
    await check(rig)
    assert [body for body, _ in asked(rig.client)] == ["a"]


async def test_a_message_that_is_born_in_the_future_is_asked_about(rig: BrokerRig) -> None:
    await send_half(rig, "a", born=rig.clock() + 3_600_000)
    await check(rig)
    assert [body for body, _ in asked(rig.client)] == ["a"]


# The end of asking -------------------------------------------------------------------------------------------------


async def test_nobody_is_asked_for_ever(rig: BrokerRig) -> None:
    await send_half(rig, "a")
    for _ in range(CHECK_MAX):
        await check(rig, TIMEOUT_MS)
    assert len(asked(rig.client)) == CHECK_MAX
    assert rig.broker.topics.find(TRANS_CHECK_MAX_TIME_TOPIC) is None
    for _ in range(3):
        await check(rig, TIMEOUT_MS)
    assert asked(rig.client) == []
    (kept,) = rig.store.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    assert (kept.body, kept.flag, kept.properties["TRANSACTION_CHECK_TIMES"]) == (b"a", 7, str(CHECK_MAX))
    assert rig.broker.topics.find(TRANS_CHECK_MAX_TIME_TOPIC) is not None
    assert positions(rig) == (CHECK_MAX + 1, CHECK_MAX + 1)


async def test_what_is_older_than_the_log_is_kept_is_given_up(rig: BrokerRig) -> None:
    await send_half(rig, "a")
    await check(rig, rig.settings.store.file_reserved_time_hours * 3_600_000 + 1)
    assert asked(rig.client) == []
    assert bodies(rig, TRANS_CHECK_MAX_TIME_TOPIC) == ["a"]


async def test_what_was_given_up_can_be_asked_about_again(rig: BrokerRig) -> None:
    await send_half(rig, "a")
    for _ in range(CHECK_MAX + 1):
        await check(rig, TIMEOUT_MS)
    asked(rig.client)
    (kept,) = rig.store.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    reply = await rig.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": kept.offset_msg_id})
    assert reply.code == 0
    await check(rig, TIMEOUT_MS)
    ((body, place),) = asked(rig.client)
    await end(rig, place)
    assert bodies(rig, "orders", 2) == [body] == ["a"]
    for text in ("", "xyz", "7F00000100002A9F00000000000F0000"):
        assert (await rig.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": text})).code == 1


# Late ends, and deaths ---------------------------------------------------------------------------------------------


async def test_an_end_that_comes_after_the_question_is_the_last_word(rig: BrokerRig) -> None:
    # RocketMQ asks about the copy all the same, and the message is delivered twice.
    first = await send_half(rig, "a")
    await check(rig, TIMEOUT_MS)
    assert len(asked(rig.client)) == 1
    await end(rig, first)
    for _ in range(3):
        await check(rig, TIMEOUT_MS)
    assert asked(rig.client) == []
    assert bodies(rig, "orders", 2) == ["a"]


async def test_an_end_during_immunity_is_found_wherever_the_half_message_lies(rig: BrokerRig) -> None:
    first = await send_half(rig, "a", CHECK_IMMUNITY_TIME_IN_SECONDS=60)
    for _ in range(4):
        await check(rig, TIMEOUT_MS)
    await end(rig, first)
    for _ in range(12):
        await check(rig, TIMEOUT_MS)
    assert asked(rig.client) == []
    assert len(bodies(rig, TRANS_HALF_TOPIC)) == 5


@pytest.mark.parametrize("saved", [True, False], ids=["positions saved", "positions lost"])
async def test_a_restart_forgets_no_transaction_and_asks_about_none_twice(rig: BrokerRig, saved: bool) -> None:
    first = await send_half(rig, "immune", CHECK_IMMUNITY_TIME_IN_SECONDS=40)
    await send_half(rig, "open")
    done = await send_half(rig, "done")
    await end(rig, done)
    await check(rig, TIMEOUT_MS)
    assert [body for body, _ in asked(rig.client)] == ["open"]
    await end(rig, first)
    if saved:
        await rig.broker.offsets.persist()
    rig.reopen()
    await rig.heart_beat("", producers=[GROUP])
    await check(rig, TIMEOUT_MS)
    ((body, place),) = asked(rig.client)
    assert body == "open"
    await end(rig, place)
    await check(rig, 60_000)
    assert asked(rig.client) == []
    assert bodies(rig, "orders", 2) == ["done", "immune", "open"]


async def test_an_answer_to_an_earlier_question_counts_after_a_restart(rig: BrokerRig) -> None:
    await send_half(rig, "a")
    await check(rig, TIMEOUT_MS)
    ((_, place),) = asked(rig.client)
    await check(rig, TIMEOUT_MS)
    assert len(asked(rig.client)) == 1
    await end(rig, place)
    rig.reopen()
    await rig.heart_beat("", producers=[GROUP])
    for _ in range(3):
        await check(rig, TIMEOUT_MS)
    assert asked(rig.client) == []
    assert bodies(rig, "orders", 2) == ["a"]


async def test_ends_of_before_are_read_again_until_all_that_was_there_is_passed(rig: BrokerRig) -> None:
    # Killed twice: the end of what was put elsewhere stands before the saved position of the op messages otherwise.
    first = await send_half(rig, "immune", CHECK_IMMUNITY_TIME_IN_SECONDS=40)
    await check(rig, TIMEOUT_MS)
    await send_half(rig, "young")
    await end(rig, first)
    for _ in range(2):
        rig.reopen()
        await rig.heart_beat("", producers=[GROUP])
        await rig.broker.transactions.check()
        await rig.broker.offsets.persist()
    for _ in range(3):
        await check(rig, 60_000)
    assert [body for body, _ in asked(rig.client)] == ["young"] * 3


async def test_what_cannot_be_put_again_is_tried_again(rig: BrokerRig) -> None:
    await send_half(rig, "a")
    rig.store.outcome = PutStatus.SERVICE_NOT_AVAILABLE
    assert await check(rig, TIMEOUT_MS) == 1.0
    assert asked(rig.client) == []
    rig.store.outcome = PutStatus.PUT_OK
    assert await check(rig) is None
    assert asked(rig.client) == [("a", 1)]


async def test_half_messages_whose_file_is_gone_are_passed_over(rig: BrokerRig) -> None:
    for number in range(3):
        await send_half(rig, str(number))
    rig.store.drop_before(TRANS_HALF_TOPIC, 0, 2)
    await check(rig, TIMEOUT_MS)
    assert [body for body, _ in asked(rig.client)] == ["2"]


async def test_a_queue_that_begins_anew_is_looked_at_from_its_start(rig: BrokerRig) -> None:
    rig.broker.offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, 0, 1000, "nobody")
    rig.broker.offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0, 1000, "nobody")
    await end(rig, await send_half(rig, "a"))
    await send_half(rig, "b")
    await check(rig, TIMEOUT_MS)
    assert [body for body, _ in asked(rig.client)] == ["b"]


async def test_op_messages_of_5x_are_read(rig: BrokerRig) -> None:
    for number in range(5):
        await send_half(rig, str(number))
    op = rig.store.puts[-1]
    op.topic, op.body, op.properties_text = TRANS_OP_HALF_TOPIC, b"0,2,99,", "TAGS\x01d\x02"
    await rig.store.put(op)
    await check(rig, TIMEOUT_MS)
    assert [body for body, _ in asked(rig.client)] == ["1", "3", "4"]


async def test_without_transactions_the_half_topic_alone_is_made(rig: BrokerRig) -> None:
    assert rig.broker.topics.find(TRANS_HALF_TOPIC) is None
    assert await check(rig, TIMEOUT_MS) is None
    made = rig.broker.topics.find(TRANS_HALF_TOPIC)
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums) == (1, 1)
    assert positions(rig) == (None, None)


async def test_whatever_happens_in_whatever_order_each_ends_once(rig: BrokerRig, chance: random.Random) -> None:
    open_, outcomes = {}, {}
    for number in range(300):
        match chance.randrange(6):
            case 0 | 1:
                key = str(number)
                more: dict[str, Any] = (
                    {"CHECK_IMMUNITY_TIME_IN_SECONDS": chance.randrange(20)} if chance.random() < 0.3 else {}
                )
                open_[key] = await send_half(rig, key, **more)
            case 2 if open_:
                key = chance.choice(list(open_))
                outcomes[key] = chance.choice([COMMIT, ROLLBACK])
                await end(rig, open_.pop(key), outcomes[key])
            case 3:
                rig.client.sent.clear()
                await check(rig, chance.randrange(8000))
                for key, place in asked(rig.client):
                    assert key in open_, "asked about what has ended"
                    # The answer may be lost, or be of use: the transaction is where the question says.
                    if chance.random() < 0.5:
                        outcomes[key] = chance.choice([COMMIT, ROLLBACK])
                        await end(rig, place, outcomes[key])
                        del open_[key]
            case 4 if chance.random() < 0.2:
                if chance.random() < 0.5:
                    await rig.broker.offsets.persist()
                rig.reopen()
                await rig.heart_beat("", producers=[GROUP])
            case _:
                rig.clock.advance(chance.randrange(3000))
    delivered = bodies(rig, "orders", 2)
    assert sorted(delivered) == sorted(key for key, outcome in outcomes.items() if outcome == COMMIT)
    await check(rig, 60_000)
    given_up = set(bodies(rig, TRANS_CHECK_MAX_TIME_TOPIC))
    assert {key for key, _ in asked(rig.client)} == set(open_) - given_up


# What is known of half messages ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 60), max_size=8), st.lists(st.integers(0, 60), max_size=4)), max_size=12
    ),
    st.lists(st.integers(0, 60), max_size=12),
)
def test_the_map_says_what_a_set_would(runs: list[tuple[list[int], list[int]]], passes: list[int]) -> None:
    known = DoneHalvesMap(0, 100)
    done: set[int] = set()
    ended: set[int] = set()
    moved: set[int] = set()
    passed = 0
    for number, (ends, moves) in enumerate(runs):
        run = DoneHalves(101 + number, np.array(ends, dtype=np.int64), np.array(moves, dtype=np.int64))
        late = known.add(run, 50)
        ended |= {half for half in ends if half < 50}
        moved |= {half for half in moves if half < 50}
        done |= ended | moved
        here = {half for half in (*ends, *moves) if half < 50}
        assert set(late) == {half for half in here if half in ended and (half in moved or half < passed)} - {
            half for half in moves if half < passed and half not in ends
        }
        assert known.next_open(passed, 60) == next(half for half in range(passed, 61) if half not in done or half == 60)
        if number < len(passes) and passes[number] > passed:
            passed = passes[number]
            known.pass_to(passed)
            read = runs[: number + 1]
            safe = 0
            while safe < len(read) and all(half < passed or half >= 50 for half in (*read[safe][0], *read[safe][1])):
                safe += 1
            assert known.op_position == 100 + safe
