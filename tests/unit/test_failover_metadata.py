"""What a failover group's master tells of its tables, and what its followers make of it."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_ports import BrokerRig

from mqcore.broker.failover import metadata as metadata_module
from mqcore.broker.failover.metadata import METADATA_OFFSET, Metadata
from mqcore.broker.failover.metadata_records import MetadataKind, MetadataRecord
from mqcore.broker.ports import InnerMessage, PutStatus
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import MetadataError, MetadataNotStoredError
from mqcore.layout import METADATA_FLAG
from mqcore.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import METADATA_TOPIC
from mqcore.store.metadata_place import MetadataPlace

HOST = HostAddress("127.0.0.1", 10911)
DEADLINE_S = 60.0


class ScriptedLog:
    """A group's log over a memory store: all is confirmed as it comes, or as far as *confirmed_to* says."""

    def __init__(self) -> None:
        self.rig: BrokerRig | None = None
        self.confirmed_to: int | None = None

    @property
    def end(self) -> int:
        return self.rig.store.end if self.rig is not None else 0

    @property
    def confirmed(self) -> int:
        return self.end if self.confirmed_to is None else self.confirmed_to


class Member:
    """A broker of a group."""

    def __init__(self, root: Path, caller: Any = None) -> None:
        self.log = ScriptedLog()
        self.rig = BrokerRig(root, caller, group_log=self.log)
        self.log.rig = self.rig

    @property
    def broker(self) -> Any:
        return self.rig.broker

    @property
    def metadata(self) -> Metadata:
        found = self.rig.broker.metadata
        assert found is not None
        return found

    def lead(self) -> None:
        self.metadata.lead(self.rig.store.end)

    def kill(self) -> None:
        """Forget everything that is not on disk. Committed offsets are since the file was written."""
        self.rig.reopen()

    def copy_log(self, source: Member, to: int, readable_to: int | None = None) -> None:
        """Have the log of *source* up to *to*, and in queues as far as it may be read."""
        store = self.rig.store
        store.records = {offset: record for offset, record in source.rig.store.records.items() if offset < to}
        store.end = to
        store.dispatched = to if readable_to is None else readable_to
        store.queues = {
            key: [unit for unit in units if unit.physical_offset < to] for key, units in source.rig.store.queues.items()
        }

    async def catch_up(self) -> None:
        """Apply what may be read."""
        while self.metadata.next_offset < self.rig.store.max_offset(METADATA_TOPIC, 0):
            await self.metadata._queues.turn(0)

    def tables(self) -> Mapping[str, object]:
        """All that members must agree on."""
        broker = self.rig.broker
        return {
            "topics": broker.topics.table.records,
            "topics version": broker.topics.version,
            "groups": broker.groups.table.records,
            "groups version": broker.groups.table.version,
            "offsets": self.rig.offsets.table,
            "levels": broker.schedule.offsets,
        }


class MasterCaller:
    """Answers a slave's questions with what a member has."""

    def __init__(self) -> None:
        self.member: Member | None = None
        self.answers: dict[int, RemotingCommand] = {}

    async def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        assert self.member is not None
        if command.code in self.answers:
            return self.answers[command.code]
        return await self.member.rig.ask(RequestCode(command.code))


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Member]:
    member = Member(tmp_path / "master")
    member.metadata.start()
    member.lead()
    yield member
    await member.metadata.stop()


@pytest.fixture
def follower(tmp_path: Path) -> Member:
    return Member(tmp_path / "follower")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def hold(master: Member) -> None:
    """Nothing of what comes is confirmed."""
    master.log.confirmed_to = master.rig.store.dispatched = master.rig.store.end


def confirm(master: Member) -> None:
    master.log.confirmed_to = master.rig.store.dispatched = None


async def test_a_topic_is_there_when_its_record_is_confirmed(master: Member) -> None:
    hold(master)
    creation = asyncio.create_task(master.rig.create_topic("orders"))
    await until(lambda: master.rig.store.end > 0)
    await asyncio.sleep(0.02)  # as much time as confirmation takes
    assert not creation.done()
    assert master.broker.topics.find("orders") is None
    assert "orders" not in master.rig.board.topics
    confirm(master)
    await creation
    assert master.rig.board.topics["orders"][0] == TopicConfig("orders", 4, 4)
    assert '"orders"' in master.rig.config_text("topics.json")


async def test_what_is_not_confirmed_in_time_is_an_error_and_counts_once_it_is(
    master: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(master)
    with monkeypatch.context() as soon:
        soon.setattr(metadata_module, "CONFIRM_S", 0.05)
        with pytest.raises(
            MetadataError, match=r"topics: the members in sync have not confirmed the change within 0\.05 s"
        ):
            await master.rig.create_topic("orders", 4)
        told = master.rig.store.end
        with pytest.raises(MetadataError, match="topics: the members in sync"):
            await master.rig.create_topic("orders", 8)
    assert master.rig.store.end == told, "a change is made on what others may not have"
    confirm(master)
    await until(lambda: master.broker.topics.find("orders"))
    await master.rig.create_topic("orders", 8)
    assert [message.queue_id for message in master.rig.store.messages(METADATA_TOPIC)] == [0, 0]
    assert master.broker.topics.find("orders") == TopicConfig("orders", 8, 8)
    assert master.broker.topics.version.counter == 2


async def test_an_administrator_is_told_that_a_change_is_not_confirmed(
    master: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_module, "CONFIRM_S", 0.05)
    hold(master)
    reply = await master.rig.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig("g").encode()
    )
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "have not confirmed the change" in str(reply.remark)


async def test_what_the_log_refuses_is_not_changed(master: Member) -> None:
    master.rig.store.outcome = PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(MetadataNotStoredError, match="topics: not changed, the log has refused"):
        await master.rig.create_topic("orders")
    master.rig.store.outcome = PutStatus.PUT_OK
    assert await master.rig.create_topic("others")
    assert master.broker.topics.find("orders") is None


async def test_a_change_that_waits_when_the_mastership_ends_is_not_known_to_be_made(master: Member) -> None:
    hold(master)
    creation = asyncio.create_task(master.rig.create_topic("orders"))
    await until(lambda: master.rig.store.end > 0)
    master.metadata.stop_leading()
    with pytest.raises(MetadataError, match="mastership has ended"):
        await creation


async def test_a_follower_s_own_changes_are_not_told(follower: Member) -> None:
    await follower.broker.topics.create("%RETRY%g", 1, 6, 0)
    assert follower.broker.topics.find("%RETRY%g") is not None
    assert follower.rig.store.end == 0


async def change_something(master: Member, chance: random.Random) -> None:
    """One change of a kind by chance."""
    broker, topic, group = master.rig.broker, f"topic-{chance.randrange(6)}", f"group-{chance.randrange(4)}"
    match chance.randrange(8):
        case 0 | 1:
            await broker.topics.update(
                TopicConfig(topic, chance.randrange(1, 9), 4, attributes={"+message.type": "FIFO"})
            )
        case 2:
            await broker.topics.delete(topic)
            await broker.offsets.remove_topic(topic)
        case 3:
            await broker.groups.update(replace(SubscriptionGroupConfig(group), retry_max_times=chance.randrange(1, 50)))
        case 4:
            await broker.groups.delete(group)
            await broker.offsets.remove_group(group)
        case 5:
            broker.schedule.follow({chance.randrange(1, 5): chance.randrange(1 << 40)})
        case _:
            for _ in range(chance.randrange(1, 30)):
                broker.offsets.commit(group, topic, chance.randrange(4), chance.randrange(1 << 40), "client")


async def test_random_changes_come_out_the_same_on_a_follower_that_is_killed_now_and_then(
    master: Member, follower: Member, chance: random.Random
) -> None:
    for _ in range(12):
        for _ in range(chance.randrange(8)):
            await change_something(master, chance)
        if chance.random() < 0.7:
            await master.metadata._tell_offsets()
        end = chance.choice([*(offset for offset in master.rig.store.records), master.rig.store.end])
        if end >= follower.rig.store.end:
            follower.copy_log(master, end)
        await follower.catch_up()
        if chance.random() < 0.3:
            await follower.metadata._queues.save()
        if chance.random() < 0.3:
            follower.kill()
    await master.metadata._tell_offsets()
    follower.copy_log(master, master.rig.store.end)
    await follower.catch_up()
    assert follower.tables() == master.tables()
    await follower.metadata.stop()
    follower.kill()
    assert follower.tables() == master.tables()


async def test_a_change_of_many_topics_is_several_records_and_one_version(master: Member, follower: Member) -> None:
    await master.broker.topics.update(*(TopicConfig(f"topic-{number}", 1, 1) for number in range(1200)))
    records = [MetadataRecord.decode(message.body) for message in master.rig.store.messages(METADATA_TOPIC)]
    assert [len(record.content["put"]) for record in records] == [500, 500, 200]
    assert [record.content["version"] is None for record in records] == [True, True, False]
    follower.copy_log(master, master.rig.store.end)
    await follower.catch_up()
    assert follower.tables() == master.tables()


async def test_offsets_are_told_once_and_those_that_the_log_refuses_later(master: Member, follower: Member) -> None:
    master.broker.offsets.commit("g", "T", 0, 7, "client")
    master.rig.store.outcome = PutStatus.OS_PAGECACHE_BUSY
    await master.metadata._tell_offsets()
    master.broker.offsets.commit("g", "T", 1, 8, "client")
    master.rig.store.outcome = PutStatus.PUT_OK
    await master.metadata._tell_offsets()
    await master.metadata._tell_offsets()
    (message,) = master.rig.store.messages(METADATA_TOPIC)
    assert sorted(MetadataRecord.decode(message.body).content["offsets"]) == [["T", "g", 0, 7], ["T", "g", 1, 8]]


async def test_a_new_master_applies_what_nobody_may_read_yet_and_then_goes_by_its_own_offsets(
    master: Member, follower: Member
) -> None:
    await master.rig.create_topic("orders")
    readable = master.rig.store.end
    await master.rig.create_topic("payments")
    master.broker.offsets.commit("g", "orders", 0, 7, "client")
    await master.metadata._tell_offsets()
    follower.copy_log(master, master.rig.store.end, readable)
    await follower.metadata.apply_all_to_end()
    assert follower.tables() == master.tables()
    follower.lead()
    follower.broker.offsets.commit("g", "orders", 0, 9, "client")
    follower.rig.store.dispatched = None
    await follower.catch_up()
    assert follower.rig.offsets.table["g", "orders", 0] == 9, "an old offset came again when its record was dispatched"
    assert follower.rig.drops.applied_to == follower.rig.store.end


async def test_offsets_that_are_lowered_when_an_epoch_begins_are_told_and_no_others(
    master: Member, follower: Member
) -> None:
    await master.rig.create_topic("orders")
    for queue_id, offset in enumerate((7, 9)):
        master.broker.offsets.commit("g", "orders", queue_id, offset, "client")
    await master.metadata._tell_offsets()
    follower.copy_log(master, master.rig.store.end)
    follower.rig.store.dispatched = None
    await follower.metadata.apply_all_to_end()
    follower.rig.offsets.put("g", "orders", 1, 8)  # as the log does that begins an epoch
    follower.lead()
    await follower.metadata._tell_offsets()
    newest = follower.rig.store.messages(METADATA_TOPIC)[-1]
    assert MetadataRecord.decode(newest.body).content["offsets"] == [["orders", "g", 1, 8]]


async def test_a_client_s_message_with_our_flag_is_no_metadata(master: Member, follower: Member) -> None:
    forged = MetadataRecord(MetadataKind.GROUPS, {"put": {}, "gone": ["TOOLS_CONSUMER"], "version": None})
    await master.rig.store.put(
        InnerMessage("orders", 0, forged.encode(), 0, HOST, HOST, flag=METADATA_FLAG, wait_store_ok=False)
    )
    follower.copy_log(master, master.rig.store.end, 0)
    await follower.metadata.apply_all_to_end()
    assert follower.broker.groups.find("TOOLS_CONSUMER") is not None


async def test_what_a_later_version_tells_is_passed_over_with_one_line(
    master: Member, follower: Member, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        body = MetadataRecord("timers", {"any": "thing"}).encode()
        await master.rig.store.put(InnerMessage(METADATA_TOPIC, 0, body, 0, HOST, HOST, flag=METADATA_FLAG))
    await master.rig.create_topic("orders")
    follower.copy_log(master, master.rig.store.end)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        await follower.catch_up()
    assert follower.broker.topics.find("orders") is not None
    assert [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()] == [
        "metadata of another version passed over kind=timers physical_offset=0"
    ]


@pytest.mark.parametrize("is_applied", [False, True], ids=["before it was applied", "before that was written down"])
async def test_a_kill_between_a_record_and_its_place_on_disk_loses_and_doubles_nothing(
    master: Member, monkeypatch: pytest.MonkeyPatch, is_applied: bool
) -> None:
    old = master.metadata
    await master.rig.create_topic("before")
    await old._queues.save()
    if is_applied:
        await master.rig.create_topic("orders")
    else:
        monkeypatch.setattr(metadata_module, "CONFIRM_S", 0.01)
        hold(master)
        with pytest.raises(MetadataError):
            await master.rig.create_topic("orders")
        # Who is killed does not apply what is confirmed from now on, beside its successor.
        await old._periodic.stop()
        await old._queues.stop()
        confirm(master)
    master.kill()
    assert (master.broker.topics.find("orders") is not None) == is_applied
    await master.catch_up()
    assert master.broker.topics.find("orders") == TopicConfig("orders", 4, 4)
    assert master.broker.topics.version.counter == 2
    await old._periodic.stop()
    await old._queues.stop()


async def test_a_log_that_was_cut_is_applied_from_the_cut_on(master: Member, follower: Member) -> None:
    await master.rig.create_topic("orders")
    cut = master.rig.store.end
    await master.rig.create_topic("lost")
    follower.copy_log(master, master.rig.store.end)
    await follower.catch_up()
    await follower.metadata._queues.save()
    follower.copy_log(master, cut)
    follower.kill()
    assert follower.metadata.next_offset == 1
    units = follower.rig.store.queues[METADATA_TOPIC, 0]
    body = MetadataRecord(
        MetadataKind.GROUPS, {"put": {"g": SubscriptionGroupConfig("g").to_json()}, "gone": [], "version": None}
    )
    await follower.rig.store.put(InnerMessage(METADATA_TOPIC, 0, body.encode(), 0, HOST, HOST, flag=METADATA_FLAG))
    assert len(units) == 2
    follower.rig.store.dispatched = None
    await follower.catch_up()
    assert follower.broker.groups.find("g") is not None


async def test_the_place_covers_all_that_is_dispatched_when_nothing_waits(master: Member, tmp_path: Path) -> None:
    await master.rig.create_topic("orders")
    await master.rig.send("orders")
    await master.metadata._queues.save()
    place = MetadataPlace.read(tmp_path / "master" / "store" / "mqcore" / "metadata")
    assert place == MetadataPlace(1, master.rig.store.end)


async def test_what_is_written_down_when_a_life_ends_waits_for_a_writer_whose_task_was_cancelled(
    master: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await master.rig.create_topic("orders")
    has_begun, may_go_on = threading.Event(), threading.Event()
    write = MetadataPlace.write

    def write_slowly(place: MetadataPlace, path: Path) -> None:
        has_begun.set()
        assert may_go_on.wait(DEADLINE_S)
        write(place, path)

    monkeypatch.setattr(MetadataPlace, "write", write_slowly)
    first = asyncio.ensure_future(master.metadata._queues.save())
    assert await asyncio.to_thread(has_begun.wait, DEADLINE_S)
    first.cancel()
    monkeypatch.setattr(MetadataPlace, "write", write)
    await master.rig.send("orders")
    last = asyncio.ensure_future(master.metadata._queues.save())
    await asyncio.sleep(0)
    may_go_on.set()
    await last
    assert first.cancelled()
    assert MetadataPlace.read(tmp_path / "master" / "store" / "mqcore" / "metadata").applied_to == master.rig.store.end


async def test_whole_tables_are_taken_unless_they_are_older_than_what_is_applied(
    master: Member, tmp_path: Path
) -> None:
    caller = MasterCaller()
    caller.member = master
    follower = Member(tmp_path / "follower", caller)
    await master.rig.create_topic("orders")
    master.broker.offsets.commit("g", "orders", 0, 7, "client")
    await follower.metadata.copies.copy("127.0.0.1:10911")
    assert follower.tables() == master.tables()
    old = await master.rig.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert (old.ext_fields or {})[METADATA_OFFSET] == "1"
    await master.rig.create_topic("payments")
    follower.copy_log(master, master.rig.store.end)
    await follower.catch_up()
    caller.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = old
    await follower.metadata.copies.copy("127.0.0.1:10911")
    assert follower.broker.topics.find("payments") is not None, "an old table has taken a topic away"
    assert follower.tables() == master.tables()


async def test_a_drop_of_queues_is_told_with_its_place_and_carried_out_by_all(master: Member, follower: Member) -> None:
    assert master.rig.drops.announce is not None
    await master.rig.drops.announce(4096, [("orders", 0), ("orders", 3)])
    follower.copy_log(master, master.rig.store.end)
    await follower.catch_up()
    for member in (master, follower):
        assert member.rig.drops.done == [(4096, [("orders", 0), ("orders", 3)])]
        assert member.rig.drops.applied_to == master.rig.store.end


async def test_only_the_master_drops_queues(follower: Member) -> None:
    assert follower.rig.drops.announce is not None
    with pytest.raises(MetadataNotStoredError, match="not the master"):
        await follower.rig.drops.announce(0, [("orders", 0)])


async def test_clients_can_neither_see_nor_use_the_topic(master: Member) -> None:
    await master.rig.create_topic("orders")
    assert METADATA_TOPIC not in master.broker.topics.names
    assert METADATA_TOPIC not in str((await master.rig.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body)
    sent = await master.rig.send(METADATA_TOPIC)
    assert (sent.code, sent.remark) == (
        ResponseCode.NO_PERMISSION, f"Sending message to topic[{METADATA_TOPIC}] is forbidden.",
    )  # fmt: skip
    pulled = await master.rig.ask(RequestCode.PULL_MESSAGE, PULL | {"topic": METADATA_TOPIC})
    assert pulled.code == ResponseCode.TOPIC_NOT_EXIST
    changed = await master.rig.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC | {"topic": METADATA_TOPIC})
    assert changed.code == ResponseCode.SYSTEM_ERROR


PULL: dict[str, object] = {
    "consumerGroup": "TOOLS_CONSUMER", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
    "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
}  # fmt: skip
NEW_TOPIC: dict[str, object] = {
    "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "order": False,
}  # fmt: skip
