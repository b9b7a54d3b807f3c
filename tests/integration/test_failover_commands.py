"""``mqcore ha`` with a whole group: operators let others lead, forget who is gone, and lose what they were told.

The tests of this module break one group, one after the other; the last one reads what its stores have.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.failover.group_keys import GroupView
from mqcore.client import Client, Message, SendStatus
from mqcore.protocol.group_bodies import GroupChange
from tests.fault.campaign.rig import TOPIC, Group, replica_of
from tests.fault.rig import find_worker
from tests.rigs import etcd
from tests.rigs.command_line import CommandLine
from tests.rigs.ports import free_port
from tests.rigs.process import ChildError
from tests.rigs.steady_sends import SteadySends, Stored, physical_offset_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(etcd.missing_tools()), reason=f"etcd cannot run here: {etcd.missing_tools()}"),
]

DEADLINE_S = 60.0
SWITCHES = 20


class Operator:
    """Who sends, gives commands, and knows what has to be there."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.mqcore = CommandLine(group.name_server)
        self.stored: dict[tuple[int, int], Stored] = {}
        self.lost: set[str] = set()

    def send(self, count: int) -> None:
        run = f"{time.monotonic_ns()}"
        with Client(self.group.name_server) as client, client.producer("operator") as producer:
            for number in range(count):
                body = f"{run}-{number}"
                receipt = producer.send(Message(TOPIC, body.encode()), timeout_s=DEADLINE_S)
                assert receipt.status is SendStatus.SEND_OK, receipt
                self.stored[receipt.queue.queue_id, receipt.offset] = Stored(body, physical_offset_of(receipt))

    def lose_from(self, physical_offset: int) -> int:
        """What was stored from *physical_offset* on may be gone; return how many messages that are."""
        gone = {place: found for place, found in self.stored.items() if found.physical_offset >= physical_offset}
        for place, found in gone.items():
            del self.stored[place]
            self.lost.add(found.body)
        return len(gone)

    def member(self, number: int) -> int:
        """The id in the group of the broker with this number."""
        return int(str(self.group.said_by(number)["brokerId"]))

    def end(self, number: int) -> int:
        return int(str(self.group.said_by(number)["maxOffset"]))

    def slaves(self) -> list[int]:
        master = self.group.master_number()
        return [number for number in range(self.group.size) if number != master]

    def status(self, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        code, out, err = self.mqcore.run("ha", "status", "--output", "json", *arguments)
        return code, json.loads(out), err

    def refusal(self, *arguments: str) -> str:
        """Give a command that must be refused, and change nothing; return its words."""
        before = self.known()
        code, out, err = self.mqcore.run("ha", *arguments)
        assert (code != 0, out) == (True, ""), (out, err)
        assert self.known() == before
        return err

    def known(self) -> tuple[object, ...]:
        """What only an operator or an election changes in etcd."""
        view: GroupView = self.group.view()
        return view.state, view.order, view.members


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with Group(tmp_path_factory.mktemp("group"), random.Random(), has_machines=False) as group:
        yield Operator(group)


def await_leader(group: Group, number: int) -> None:
    wait_until(lambda: group.master_number() == number, DEADLINE_S, f"broker {number} leads")


def test_every_member_is_shown_with_what_it_and_its_master_know(operator: Operator) -> None:
    operator.group.await_in_sync(3)
    operator.send(5)
    operator.group.await_equal_ends()
    code, rows, err = operator.status()
    assert (code, err) == (0, "")
    assert [row["brokerId"] for row in rows] == [1, 2, 3]
    assert [row["role"] for row in rows] == ["MASTER", "SLAVE", "SLAVE"]
    end = operator.end(0)
    for number, row in enumerate(rows):
        assert (row["epoch"], row["inSync"], row["trusted"], row["end"], row["acked"]) == (1, True, True, end, end)
        assert (row["behindBytes"], row["address"]) == (0, operator.group.brokers[number].broker_address)
        assert row["confirmed"] == end
    assert [row["why"] for row in rows] == ["it founds the group", "member 1 leads", "member 1 leads"]
    for place in (("--broker", "broker-a"), ("--address", operator.group.brokers[2].broker_address)):
        assert [row["end"] for row in operator.status(*place)[1]] == [end] * 3
    without_name_server = CommandLine(f"127.0.0.1:{free_port()}")
    rows = without_name_server.json("ha", "status", "--address", operator.group.brokers[1].broker_address)
    assert [row["end"] for row in rows] == [end] * 3


def test_dry_runs_and_refusals_change_nothing(operator: Operator) -> None:
    operator.group.await_in_sync(3)
    before = operator.known()
    tried = operator.mqcore.json("ha", "switch", "--to", "2", "--dry-run")
    assert (tried["member"], tried["masterBefore"], tried["epoch"], tried["dryRun"]) == (2, 1, 1, True)
    assert operator.known() == before
    assert "member 1 leads already" in operator.refusal("switch", "--to", "1")
    assert "the group has no member 9" in operator.refusal("switch", "--to", "9")
    assert "member 2 announces itself; stop it first" in operator.refusal("remove", "2", "--yes")
    assert "add --yes to do it" in operator.refusal("remove", "2")
    assert "member 2 is in sync: mqcore ha switch --to 2 loses nothing" in operator.refusal("unclean-elect", "2")
    assert "knows no broker named 'broker-b'" in operator.refusal("switch", "--to", "2", "--broker", "broker-b")


@pytest.mark.timeout(1200)
def test_an_operator_switches_there_and_back_and_no_send_fails(operator: Operator) -> None:
    group = operator.group
    silences: list[float] = []
    with SteadySends(group.name_server, TOPIC) as sends:
        for _ in range(SWITCHES):
            group.await_in_sync(3)
            to = operator.slaves()[0]
            began = time.monotonic()
            done = operator.mqcore.json("ha", "switch", "--to", str(operator.member(to)))
            assert group.master_number() == to
            assert done["epoch"] > 1
            wait_until(partial(sends.has_answer_since, time.monotonic()), DEADLINE_S, "messages are acknowledged")
            silences.append(sends.longest_silence_s(began))
    silences.sort()
    print(f"time without SEND_OK: p50 {silences[len(silences) // 2]:.3f} s, most {silences[-1]:.3f} s", end=" ")
    assert sends.failed == []
    assert len(sends.stored) > SWITCHES
    operator.stored.update(sends.stored)


def test_a_master_goes_on_when_the_one_who_was_named_stands_still(operator: Operator) -> None:
    group = operator.group
    group.await_in_sync(3)
    master, (named, _) = group.master_number(), operator.slaves()
    member, broker = operator.member(named), group.brokers[named]
    group.await_equal_ends()
    processes = [broker.pid, *broker.worker_pids()]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        # It is in sync for a moment yet: the command would look at everybody first.
        with Client(group.name_server) as client:
            address, epoch = group.brokers[master].broker_address, int(str(group.said_by(master)["term"]))
            client.admin.change_failover_group(address, GroupChange.SWITCH, member, epoch)
        operator.send(5)
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    group.await_in_sync(3)
    order, state = group.view().order, group.view().state
    assert order is not None
    assert state is not None
    assert order.to == state.master == operator.member(master)
    operator.send(5)


def test_who_is_gone_for_good_is_forgotten_and_joins_anew_only_empty(operator: Operator) -> None:
    group = operator.group
    group.await_in_sync(3)
    gone = operator.slaves()[0]
    member, broker = operator.member(gone), group.brokers[gone]
    broker.kill()
    wait_until(lambda: member not in group.view().alive, DEADLINE_S, "it is not announced any more")
    group.await_in_sync(2)
    before = operator.known()
    operator.mqcore.json("ha", "remove", str(member), "--dry-run")
    assert operator.known() == before
    code, rows, err = operator.status()
    assert (code, rows[member - 1]["state"]) == (4, "GONE")
    assert f"no answer from {broker.broker_address}" in err

    assert operator.mqcore.json("ha", "remove", str(member), "--yes")["member"] == member
    assert group.view().members[member].removed
    assert f"member {member} was removed already" in operator.refusal("remove", str(member), "--yes")
    wait_until(lambda: len(operator.status("--address", group.master().broker_address)[1]) == 2, DEADLINE_S, "two rows")

    with contextlib.suppress(ChildError):  # it may have ended before it is seen to serve
        group.start_again(gone)
    wait_until(lambda: not broker.child.is_alive, DEADLINE_S, "it stops")
    assert f"member {member} was removed from the group; empty the store to join anew" in broker.child.log.read_text()
    shutil.rmtree(broker.store_dir)
    group.start_again(gone)
    group.await_in_sync(3)
    assert operator.member(gone) == 4


def test_what_a_member_lacks_of_one_that_answers_is_what_is_lost(operator: Operator) -> None:
    group = operator.group
    group.await_in_sync(3)
    operator.send(10)
    behind, away = operator.slaves()
    master = group.master_number()
    group.brokers[behind].kill()
    operator.send(10)
    group.brokers[away].kill()
    operator.send(10)
    # The master answers, but nobody can copy from it any more.
    copier = find_worker(group.brokers[master], "ha")
    os.kill(copier.pid, signal.SIGSTOP)
    try:
        group.start_again(behind)
        member = operator.member(behind)
        wait_until(lambda: member in group.view().alive, DEADLINE_S, "it is announced")
        end, lost = operator.end(behind), operator.end(master) - operator.end(behind)
        assert "is not in sync: messages that were acknowledged would be lost" in operator.refusal(
            "switch", "--to", str(member)
        )
        tried = operator.mqcore.json("ha", "unclean-elect", str(member), "--dry-run")
        assert (tried["lostBytesMax"], tried["dryRun"]) == (lost, True)
        gaps = {gap["member"]: gap for gap in tried["gaps"]}
        assert gaps[operator.member(master)]["lostBytes"] == lost
        assert f"lose what was acknowledged in the last {lost} bytes" in operator.refusal("unclean-elect", str(member))
        operator.mqcore.json("ha", "unclean-elect", str(member), "--yes")
    finally:
        os.kill(copier.pid, signal.SIGCONT)
    await_leader(group, behind)
    assert operator.lose_from(end) == 20
    group.start_again(away)
    group.await_in_sync(3)
    operator.send(10)


def test_while_nobody_leads_commands_find_the_group_and_say_what_is_not_known(operator: Operator) -> None:
    group = operator.group
    group.await_in_sync(3)
    operator.send(10)
    left, *_ = operator.slaves()
    others = [number for number in range(group.size) if number != left]
    group.brokers[left].kill()
    group.await_in_sync(2)
    operator.send(10)
    members = [operator.member(number) for number in others]
    # The slave first: without it the master acknowledges nothing, and cannot be alone in sync before it is killed, too.
    for number in sorted(others, key=lambda number: number == group.master_number()):
        group.brokers[number].kill()
    # Who starts sooner has read what they announced last.
    wait_until(lambda: not group.view().alive, DEADLINE_S, "nobody is announced any more")
    group.start_again(left)
    member = operator.member(left)
    wait_until(lambda: group.view().alive.keys() == {member}, DEADLINE_S, "it alone is announced")

    code, rows, err = operator.status("--broker", "broker-a")
    assert code == 4
    assert "nobody leads broker-a" in err
    assert [other for other in members if f"member {other} of broker-a is gone" not in err] == [], err
    assert {row["brokerId"]: row["role"] for row in rows if row["role"]} == {member: "SLAVE"}
    address = group.brokers[left].broker_address
    assert "is not in sync" in operator.refusal("switch", "--to", str(member), "--address", address)
    in_sync = next(other for other in members if other in group.view().state.isr)  # type: ignore[union-attr]
    assert f"member {in_sync} is in sync" in operator.refusal("remove", str(in_sync), "--yes", "--address", address)

    end = operator.end(left)
    words = operator.refusal("unclean-elect", str(member), "--address", address)
    assert f"member {member} would lead with its log up to {end}," in words
    assert f"member {in_sync} (in sync) does not answer" in words
    assert "lose acknowledged messages, nobody knows how many" in words
    done = operator.mqcore.json("ha", "unclean-elect", str(member), "--yes", "--address", address)
    assert (done["lostBytesMax"], done["member"]) == (None, member)
    known = {gap["member"]: (gap["inSync"], gap["answers"], gap["end"]) for gap in done["gaps"]}
    assert known[in_sync] == (True, False, None)
    await_leader(group, left)
    assert operator.lose_from(end) == 10
    for number in others:
        group.start_again(number)
    group.await_in_sync(3)
    operator.send(10)


def test_all_stores_have_what_was_not_said_to_be_lost_and_nothing_of_that(operator: Operator) -> None:
    group = operator.group
    operator.send(1)
    group.await_equal_ends()
    group.stop_all()
    for number, broker in enumerate(group.brokers):
        replica = replica_of(f"broker{number}", Path(broker.store_dir))
        for place, stored in operator.stored.items():
            assert replica.messages[place] == [stored.body], (number, place)
        kept = {body for bodies in replica.messages.values() for body in bodies}
        assert operator.lost & kept == set()
