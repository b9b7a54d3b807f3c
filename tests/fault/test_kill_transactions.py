"""Deaths over transactions: each half message that was answered is committed once, rolled back, or asked about.

What becomes of a transaction follows from its body, so whoever is asked knows it. A commit that was acknowledged is
there at once; the others are ended by a producer of the group that is asked, in whatever life of the broker.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

import pytest

from mqcore.codes import RemotingFlag, RequestCode, ResponseCode, SysFlag
from mqcore.protocol import headers
from mqcore.protocol.bodies import HeartbeatData, ProducerData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_decoder import decode_message
from mqcore.protocol.message_id import decode_offset_message_id
from mqcore.protocol.properties import encode_properties
from mqcore.store.log.record import decode
from tests.compat import apache_requests as requests
from tests.fault import stepping
from tests.fault.history import History, read_all
from tests.fault.rig import (
    ASYNC_FLUSH,
    DEADLINE_S,
    GEOMETRY,
    KILLS_PER_LIFE,
    SYNC_FLUSH,
    at_work,
    await_successor,
    find_worker,
    kill_worker,
    new_history,
    seeded,
    seeds,
    start_broker,
)
from tests.fault.stepping import Function, Stopped
from tests.fault.store_scan import scan_store
from tests.fault.talker import Talker
from tests.fault.test_kill_points import anywhere, in_the_put_lock
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

GROUP = "fault_transactions"
HALF_TOPIC, TRANS_GROUP = "RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"
# Nobody gives up while the broker is dead, and an end that is under way is not asked about on a slow machine.
RULES = {"transactionCheckInterval": "300", "transactionTimeOut": "1000", "transactionCheckMax": "10000"}
WORKERS = 3
EVERYDAY_KILLS, SLOW_KILLS, SLOW_ROUNDS = 2, 10, 12
POINTS, SLOW_POINTS = 3, 60
ROUND_CALLS_MAX = 60
APPEND_PAIR = Function("mqcore._fast.log.append", "append_pair")
PAIR_STEPS_MAX = 4_000
LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}


class Plan(Enum):
    """What the producer of a half message does next."""

    COMMIT = auto()
    ROLL_BACK = auto()
    SAY_NOTHING = auto()
    """And commit when it is asked."""


def plan_of(body: bytes) -> Plan:
    return list(Plan)[zlib.crc32(body) % 3]


def half_request(topic: str, body: bytes, listed: str = "") -> RemotingCommand:
    properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": body.decode(), "WAIT": "true"}
    if listed:
        properties["INNER_MULTI_DISPATCH"] = listed
    fields = headers.encode_request(
        RequestCode.SEND_MESSAGE_V2, producer_group=GROUP, topic=topic, default_topic="TBW102",
        default_topic_queue_nums=4, queue_id=zlib.crc32(body) % 4, sys_flag=int(SysFlag.TRANSACTION_PREPARED),
        born_timestamp=time.time_ns() // 1_000_000, flag=0, properties=encode_properties(properties),
        reconsume_times=0,
    )  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)


def end_request(half: RemotingCommand, body: bytes) -> RemotingCommand:
    assert half.ext_fields is not None
    outcome = SysFlag.TRANSACTION_COMMIT if plan_of(body) is Plan.COMMIT else SysFlag.TRANSACTION_ROLLBACK
    fields = headers.encode_request(
        RequestCode.END_TRANSACTION, producer_group=GROUP, msg_id=body.decode(), commit_or_rollback=int(outcome),
        tran_state_table_offset=int(half.ext_fields["queueOffset"]),
        commit_log_offset=decode_offset_message_id(half.ext_fields["msgId"]).physical_offset,
    )  # fmt: skip
    return RemotingCommand(RequestCode.END_TRANSACTION, ext_fields=fields)


class Ledger:
    """What producers were told."""

    def __init__(self, broker: MqcoreBroker, history: History) -> None:
        self.broker = broker
        self.history = history
        self.sent: set[bytes] = set()
        self.opened: set[bytes] = set()
        self.committed: set[bytes] = set()
        self.listed = ""
        """A light queue that each message goes into, too."""
        self._numbers = iter(range(1 << 30))
        self._lock = threading.Lock()

    def new_body(self) -> bytes:
        with self._lock:
            body = f"{self.history.run}-{next(self._numbers)}".encode()
            self.sent.add(body)
        return body

    def open(self, talker: Talker) -> tuple[bytes, RemotingCommand | None]:
        """Send a half message; its body, and its answer if it was taken."""
        body = self.new_body()
        reply = talker.call(half_request(self.history.topic, body, self.listed))
        if reply.code != ResponseCode.SUCCESS:
            return body, None
        self.opened.add(body)
        return body, reply

    def note_end(self, body: bytes, reply: RemotingCommand) -> None:
        if reply.code == ResponseCode.SUCCESS and plan_of(body) is Plan.COMMIT:
            self.committed.add(body)

    def work(self, stop: threading.Event) -> None:
        """Make transactions until *stop*, over one connection after the other."""
        while not stop.is_set():
            with contextlib.suppress(OSError), Talker(self.broker.broker_address) as talker:
                while not stop.is_set():
                    body, half = self.open(talker)
                    if half is not None and plan_of(body) is not Plan.SAY_NOTHING:
                        self.note_end(body, talker.call(end_request(half, body)))
            stop.wait(0.01)

    def under_way(self) -> contextlib.AbstractContextManager[None]:
        return at_work(*[self.work] * WORKERS)

    def await_more(self, count: int) -> None:
        """Wait until so many more half messages have been answered."""
        wanted = len(self.opened) + count
        wait_until(lambda: len(self.opened) >= wanted, DEADLINE_S, "transactions go on")

    def await_halves(self, count: int) -> None:
        """Wait until so many more half messages are stored; nobody sends any, so they are put again."""
        address = self.broker.broker_address
        wanted = wire.max_offset(address, HALF_TOPIC, 0) + count
        wait_until(lambda: wire.max_offset(address, HALF_TOPIC, 0) >= wanted, DEADLINE_S, "half messages are put again")

    def seen(self) -> Counter[bytes]:
        """The bodies that consumers of the topic get."""
        return Counter(read_all(self.history, self.broker.broker_address).values())

    def check_acknowledged(self) -> None:
        """What was acknowledged is there, before anybody is asked about anything."""
        assert self.committed <= set(self.seen())

    def settle(self) -> None:
        """Let a producer be asked until nothing is open, and hold what there is against what was promised."""
        self.check_acknowledged()
        with answering(self.broker):
            wait_until(self.is_settled, DEADLINE_S, "no transaction is open")
        seen = self.seen()
        assert [body for body, count in seen.items() if count > 1] == []
        wanted = {body for body in self.opened if plan_of(body) is not Plan.ROLL_BACK}
        assert wanted <= set(seen)
        assert {body for body in seen if plan_of(body) is Plan.ROLL_BACK} == set()
        assert set(seen) <= self.sent
        print(f"{len(self.sent)} sent, {len(self.opened)} opened, {len(seen)} delivered")

    def check_listed(self) -> None:
        """The light queue has what the topic has."""
        address = self.broker.broker_address
        records = requests.split_records(requests.pull_all(address, self.listed, 0, group=self.listed))
        assert Counter(decode(record, 0).body for record in records) == self.seen()

    def is_settled(self) -> bool:
        address = self.broker.broker_address
        # In this order: what a round has put again is in the log before its position is there.
        position = wire.consumer_offset(address, TRANS_GROUP, HALF_TOPIC, 0)
        return wire.is_dispatched(address) and position == wire.max_offset(address, HALF_TOPIC, 0)


class Answerer:
    """A producer of the group that says what becomes of what it is asked about, once for each."""

    def __init__(self, broker: MqcoreBroker) -> None:
        self._broker = broker
        self._answered: set[bytes] = set()

    def answer(self, question: RemotingCommand) -> RemotingCommand | None:
        half = decode_message(question.body)
        plan = plan_of(half.body)
        # The first question may come while the end is under way; who answers twice commits twice.
        is_early = half.properties["TRANSACTION_CHECK_TIMES"] == "1" and plan is not Plan.SAY_NOTHING
        if is_early or half.body in self._answered:
            return None
        self._answered.add(half.body)
        assert question.ext_fields is not None
        outcome = SysFlag.TRANSACTION_ROLLBACK if plan is Plan.ROLL_BACK else SysFlag.TRANSACTION_COMMIT
        fields = headers.encode_request(
            RequestCode.END_TRANSACTION, producer_group=GROUP, msg_id=half.body.decode(),
            commit_or_rollback=int(outcome), from_transaction_check=True,
            tran_state_table_offset=int(question.ext_fields["tranStateTableOffset"]),
            commit_log_offset=int(question.ext_fields["commitLogOffset"]),
        )  # fmt: skip
        return RemotingCommand(RequestCode.END_TRANSACTION, flag=int(RemotingFlag.ONEWAY), ext_fields=fields)

    def work(self, stop: threading.Event) -> None:
        beat = HeartbeatData("answerer", [ProducerData(GROUP)], []).encode()
        while not stop.is_set():
            with contextlib.suppress(OSError), Talker(self._broker.broker_address) as talker:
                talker.call(RemotingCommand(RequestCode.HEART_BEAT, body=beat))
                while not stop.is_set():
                    with contextlib.suppress(TimeoutError):
                        command = talker.receive(0.05)
                        if command.code == RequestCode.CHECK_TRANSACTION_STATE and not command.is_response:
                            end = self.answer(command)
                            talker.send([] if end is None else [end])
            stop.wait(0.01)


def answering(broker: MqcoreBroker) -> contextlib.AbstractContextManager[None]:
    return at_work(Answerer(broker).work)


def start(tmp_path: Path, settings: dict[str, str], seed: int) -> tuple[MqcoreBroker, Ledger]:
    broker = start_broker(tmp_path, settings | RULES)
    return broker, Ledger(broker, new_history(broker, "Transactions", f"t{seed}"))


# At random moments -------------------------------------------------------------------------------------------------


def kill_at_random(tmp_path: Path, seed: int, kills: int) -> None:
    rng = seeded(seed)
    broker, ledger = start(tmp_path, rng.choice([SYNC_FLUSH, ASYNC_FLUSH]), seed)
    with broker:
        deaths = 0
        for number in range(kills):
            with answering(broker), ledger.under_way():
                ledger.await_more(30)
                time.sleep(rng.uniform(0, 0.5))
                victim = "broker" if number == kills - 1 else rng.choice(["send", "reput", "broker"])
                if victim != "broker" and deaths < KILLS_PER_LIFE:
                    deaths += 1
                    kill_worker(broker, victim)
                    ledger.await_more(30)
                    continue
                broker.kill()
            deaths = 0
            broker.start_again()
        ledger.settle()
        broker.stop()
        scan_store(broker.store_dir, GEOMETRY)


def test_every_transaction_ends_once_over_deaths_at_random_moments(tmp_path: Path) -> None:
    kill_at_random(tmp_path, seeds(1)[0], EVERYDAY_KILLS)


@pytest.mark.slow
def test_every_transaction_ends_once_over_many_deaths(tmp_path: Path) -> None:
    for seed in seeds(SLOW_ROUNDS):
        kill_at_random(tmp_path / str(seed), seed, SLOW_KILLS)


# At named points ---------------------------------------------------------------------------------------------------

needs_root = [
    pytest.mark.root,
    pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission()),
]
Move = Callable[[random.Random, Stopped, MqcoreBroker], None]


def kill_over_ends(tmp_path: Path, move: Move, seed: int, points: int) -> None:
    """The send worker dies somewhere between a half message or an end that has come, and its answer."""
    rng = seeded(seed)
    broker, ledger = start(tmp_path, SYNC_FLUSH, seed)
    with broker:
        for number in range(points):
            if number and number % KILLS_PER_LIFE == 0:
                broker.kill()
                broker.start_again()
            worker = find_worker(broker, "send")
            with Talker(broker.broker_address) as talker:
                body, half = ledger.open(talker)
                while half is None or plan_of(body) is Plan.SAY_NOTHING:
                    body, half = ledger.open(talker)
                is_over_half = number % 3 == 2
                if is_over_half:
                    body = ledger.new_body()
                with Stopped(worker.pid) as stopped:
                    talker.send([half_request(ledger.history.topic, body) if is_over_half else end_request(half, body)])
                    move(rng, stopped, broker)
                with contextlib.suppress(ConnectionError):
                    reply = talker.receive()
                    if not is_over_half:
                        ledger.note_end(body, reply)
                    elif reply.code == ResponseCode.SUCCESS:
                        ledger.opened.add(body)
            await_successor(broker, "send", worker.pid)
        ledger.settle()
        broker.stop()
        scan_store(broker.store_dir, GEOMETRY)


@pytest.mark.root
@pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission())
def test_a_send_worker_may_die_over_the_end_of_a_transaction(tmp_path: Path) -> None:
    kill_over_ends(tmp_path, in_the_put_lock, seeds(1)[0], POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("move", [pytest.param(move, marks=needs_root) for move in (anywhere, in_the_put_lock)])
def test_a_send_worker_may_die_over_many_ends(tmp_path: Path, move: Move) -> None:
    kill_over_ends(tmp_path, move, seeds(1)[0], SLOW_POINTS)


def kill_in_rounds(tmp_path: Path, seed: int, points: int) -> None:
    """The broker process dies somewhere in a round in which it puts half messages again and asks about them."""
    rng = seeded(seed)
    broker, ledger = start(tmp_path, ASYNC_FLUSH, seed)
    with broker:
        for _ in range(points):
            with Talker(broker.broker_address) as talker:
                for _ in range(8):
                    body, half = ledger.open(talker)
                    if half is not None and plan_of(body) is Plan.COMMIT:
                        ledger.note_end(body, talker.call(end_request(half, body)))
            with answering(broker):
                ledger.await_halves(1)
                with Stopped(broker.pid) as stopped:
                    stopped.to_system_call(rng.randrange(ROUND_CALLS_MAX))
            broker.kill()
            broker.start_again()
        ledger.settle()
        broker.stop()
        scan_store(broker.store_dir, GEOMETRY)


@pytest.mark.root
@pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission())
def test_the_broker_process_may_die_while_it_asks(tmp_path: Path) -> None:
    kill_in_rounds(tmp_path, seeds(1)[0], 1)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission())
def test_the_broker_process_may_die_in_many_rounds(tmp_path: Path) -> None:
    kill_in_rounds(tmp_path, seeds(1)[0], SLOW_POINTS)


def kill_over_pairs(tmp_path: Path, seed: int, points: int) -> None:
    """The broker process dies somewhere over a commit into several queues, which it stores with its op message."""
    rng = seeded(seed)
    broker, ledger = start(tmp_path, SYNC_FLUSH | LIGHT, seed)
    ledger.listed = "%LMQ%committed"
    with broker:
        for _ in range(points):
            with Talker(broker.broker_address) as talker:
                body, half = ledger.open(talker)
                while half is None or plan_of(body) is not Plan.COMMIT:
                    body, half = ledger.open(talker)
                with Stopped(broker.pid) as stopped:
                    talker.send([end_request(half, body)])
                    stopped.to_call(APPEND_PAIR, 1)
                    stopped.step(rng.randrange(PAIR_STEPS_MAX))
                with contextlib.suppress(ConnectionError):
                    ledger.note_end(body, talker.receive())
            broker.kill()
            broker.start_again()
        ledger.settle()
        ledger.check_listed()
        broker.stop()


@pytest.mark.root
@pytest.mark.skipif(bool(stepping.missing_breakpoints()), reason=stepping.missing_breakpoints())
def test_the_broker_process_may_die_over_a_commit_into_several_queues(tmp_path: Path) -> None:
    kill_over_pairs(tmp_path, seeds(1)[0], 2)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(bool(stepping.missing_breakpoints()), reason=stepping.missing_breakpoints())
def test_the_broker_process_may_die_over_many_commits_into_several_queues(tmp_path: Path) -> None:
    kill_over_pairs(tmp_path, seeds(1)[0], SLOW_POINTS)
