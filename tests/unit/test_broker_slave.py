"""A slave's broker process and its master: with whom the log is copied, and whose tables are taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_ports import BrokerRig

from mqcore.broker.services import slave_synchronize
from mqcore.broker.services.slave_synchronize import SlaveSynchronize
from mqcore.broker.services.table_copies import TableCopies
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import RemotingConnectError
from mqcore.protocol import fastjson
from mqcore.protocol.bodies import KVTable, TopicConfig, TopicConfigSerializeWrapper
from mqcore.protocol.command import RemotingCommand

MASTER, HA, FAST = "10.0.0.1:10911", "10.0.0.1:10912", "10.0.0.1:10909"
FILE_SIZE = 1 << 30
DEADLINE_S = 30.0


class MemoryReplica:
    """The port of the copy, with what it was told."""

    def __init__(self) -> None:
        self.end = 0
        self.is_copying = False
        self.is_dispatched = True
        self.newest: tuple[int, bytes] | None = None
        self.told: list[tuple[str, int, int]] = []

    def newest_record(self) -> tuple[int, bytes] | None:
        return self.newest

    def follow(self, host: str, port: int, start: int) -> None:
        self.told.append((host, port, start))
        self.is_copying = True


class MasterCaller:
    """The master, as far as a slave asks it."""

    def __init__(self) -> None:
        self.file_size = FILE_SIZE
        self.bounds = (0, 0)
        self.records: dict[int, bytes] = {}
        self.bodies: dict[int, bytes] = {}
        self.asked: list[tuple[str, int]] = []
        self.is_down = False
        self.refuses = ""

    async def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.asked.append((address, command.code))
        if self.is_down:
            raise RemotingConnectError(address, "nobody is there")
        if self.refuses:
            return command.reply(ResponseCode.SYSTEM_ERROR, self.refuses)
        code: int = command.code
        if code == RequestCode.GET_BROKER_CONFIG:
            return command.reply(body=f"mappedFileSizeCommitLog={self.file_size}\n".encode())
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            first, end = map(str, self.bounds)
            return command.reply(body=KVTable({"commitLogMinOffset": first, "commitLogMaxOffset": end}).encode())
        if code == RequestCode.VIEW_MESSAGE_BY_ID:
            assert command.ext_fields is not None
            record = self.records.get(int(command.ext_fields["offset"]))
            return command.reply(ResponseCode.SYSTEM_ERROR, "none") if record is None else command.reply(body=record)
        return command.reply(body=self.bodies[code])

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_s: float) -> None:
        raise AssertionError("a slave asks, and wants answers")


class SlaveRig:
    """A SlaveSynchronize between a memory broker and such a master."""

    def __init__(self, broker: BrokerRig) -> None:
        self.replica, self.master = MemoryReplica(), MasterCaller()
        self.broker = broker.broker
        copies = TableCopies(
            self.broker.settings, self.broker.topics, self.broker.groups, self.broker.offsets, self.broker.schedule,
            self.master,
        )  # fmt: skip
        self.slave = SlaveSynchronize(self.broker.settings, copies, self.replica)
        self.slave.learn(MASTER, HA)

    @contextlib.asynccontextmanager
    async def copying(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.slave.keep_copying())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.001)

    async def refusal(self) -> str:
        """Why the log is not copied."""
        async with self.copying():
            await self.until(lambda: self.slave.refusal)
        assert self.replica.told == []
        return self.slave.refusal

    async def told(self) -> tuple[str, int, int]:
        """What the ha worker is told."""
        async with self.copying():
            await self.until(lambda: self.replica.told)
        return self.replica.told[-1]


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlaveRig:
    monkeypatch.setattr(slave_synchronize, "LOOK_S", 0.001)
    monkeypatch.setattr(slave_synchronize, "RETRY_S", 0.01)
    return SlaveRig(BrokerRig(tmp_path))


# The log


@pytest.mark.parametrize(
    ("remark", "wanted"),
    [
        ("store not ready", "answers with code 1: store not ready"),
        ("org.apache.rocketmq.acl.common.AclException: No accessKey is configured", "globalWhiteRemoteAddresses"),
    ],
)
async def test_a_master_that_says_no_is_heard_by_who_asks_the_slave_and_asked_again(
    rig: SlaveRig, remark: str, wanted: str
) -> None:
    rig.master.refuses = remark
    refusal = await rig.refusal()
    assert remark in refusal
    assert wanted in refusal
    rig.master.refuses = ""
    await rig.told()
    assert rig.slave.refusal == ""


async def test_a_slave_asks_its_master_when_its_own_log_is_dispatched(rig: SlaveRig) -> None:
    rig.replica.is_dispatched = False
    async with rig.copying():
        await asyncio.sleep(20 * slave_synchronize.LOOK_S)
        assert rig.master.asked == []
        rig.replica.is_dispatched = True
        await rig.until(lambda: rig.replica.told)


@pytest.mark.parametrize(
    ("bounds", "start"), [((0, 0), -1), ((0, 5000), 0), ((2 * FILE_SIZE, 3 * FILE_SIZE), 2 * FILE_SIZE)]
)
async def test_an_empty_slave_begins_where_its_master_has_the_first_byte(
    rig: SlaveRig, bounds: tuple[int, int], start: int
) -> None:
    rig.master.bounds = bounds
    assert await rig.told() == ("10.0.0.1", 10912, start)


async def test_a_slave_whose_newest_record_is_the_masters_goes_on(rig: SlaveRig) -> None:
    rig.replica.end, rig.replica.newest = 1100, (1000, b"r" * 100)
    rig.master.bounds, rig.master.records = (0, 5000), {1000: b"r" * 100}
    assert await rig.told() == ("10.0.0.1", 10912, 1100)


async def test_it_looks_again_after_each_connection_that_has_ended(rig: SlaveRig) -> None:
    rig.replica.end, rig.replica.newest = 1100, (1000, b"r" * 100)
    rig.master.bounds, rig.master.records = (0, 5000), {1000: b"r" * 100}
    async with rig.copying():
        await rig.until(lambda: len(rig.replica.told) == 1)
        rig.master.records = {1000: b"R" * 100}
        rig.replica.is_copying = False
        await rig.until(lambda: rig.slave.refusal)
        rig.master.records = {1000: b"r" * 100}
        await rig.until(lambda: len(rig.replica.told) == 2)
    assert rig.slave.refusal == ""


@pytest.mark.parametrize(
    ("bounds", "records", "why"),
    [
        ((0, 5000), {1000: b"R" * 100}, "the records at 1000 differ: another history"),
        ((0, 5000), {}, "the master has no record at 1000"),
        ((0, 1050), {1000: b"r" * 100}, "this log has a record up to 1100, the master's ends at 1050"),
        ((2000, 5000), {}, "this log ends at 1100, before the master's first file at 2000"),
    ],
)
async def test_another_history_is_named_and_not_copied(
    rig: SlaveRig, bounds: tuple[int, int], records: dict[int, bytes], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.replica.end, rig.replica.newest = 1100, (1000, b"r" * 100)
    rig.master.bounds, rig.master.records = bounds, records
    assert (await rig.refusal()).startswith(why)
    assert why in caplog.text


async def test_a_master_of_other_file_sizes_is_named_and_not_copied(rig: SlaveRig) -> None:
    rig.master.file_size = FILE_SIZE // 2
    assert await rig.refusal() == f"mappedFileSizeCommitLog: the master has {FILE_SIZE // 2}, this slave {FILE_SIZE}"


async def test_a_master_that_does_not_answer_is_asked_again(rig: SlaveRig) -> None:
    rig.master.is_down = True
    async with rig.copying():
        await rig.until(lambda: len(rig.master.asked) > 3)
        rig.master.is_down = False
        await rig.until(lambda: rig.replica.told)


async def test_without_a_master_nobody_is_asked(rig: SlaveRig) -> None:
    rig.slave.learn(None, None)
    rig.slave._learned_ha = ""
    async with rig.copying():
        await asyncio.sleep(0.02)
    await rig.slave.copy_tables()
    assert rig.master.asked == []


# The tables


def tables() -> dict[int, bytes]:
    return {
        RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper({"Theirs": TopicConfig("Theirs", 3, 3)}).encode(),
        RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"Theirs@billing":{0:7,1:8}}}',
        RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{3:40}}',
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: fastjson.dumps(
            {
                "dataVersion": {"counter": 9, "timestamp": 1},
                "subscriptionGroupTable": {"billing": {"groupName": "billing", "retryMaxTimes": 3}},
            }
        ),
    }


async def test_tables_are_copied_in_rocketmqs_order_topics_over_the_fast_port(rig: SlaveRig) -> None:
    rig.broker.offsets.commit("billing", "Theirs", 0, 100, "")
    rig.broker.offsets.commit("mine", "Mine", 0, 5, "")
    rig.master.bodies = tables()
    await rig.slave.copy_tables()
    assert rig.master.asked == [(FAST, 21), (MASTER, 43), (MASTER, 45), (MASTER, 201)]
    assert rig.broker.topics.names == ["Theirs"]
    # The master's wins, and what it does not have stays.
    assert await rig.broker.offsets.queues("billing", "Theirs") == {0: 7, 1: 8}
    assert rig.broker.offsets.query("mine", "Mine", 0) == 5
    assert rig.broker.schedule.offsets == {3: 40}
    group = rig.broker.groups.find("billing")
    assert group is not None
    assert group.retry_max_times == 3


async def test_a_table_that_cannot_be_had_keeps_nothing_from_the_others(rig: SlaveRig) -> None:
    rig.master.bodies = tables()
    rig.master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = b"{"
    await rig.slave.copy_tables()
    assert rig.broker.topics.names == ["Theirs"]
    assert rig.broker.schedule.offsets == {3: 40}


async def test_a_pinned_address_is_that_of_the_log_alone(rig: SlaveRig, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = rig.broker.settings
    current = settings.current
    pinned = replace(current, store=current.store._replace(ha_master_address="10.0.0.9:20912"))
    monkeypatch.setattr(settings, "current", pinned)
    assert (rig.slave.ha_address, rig.slave.address) == ("10.0.0.9:20912", MASTER)
    rig.slave.learn(None, None)
    assert rig.slave.address == "10.0.0.9:20911"
