"""What an operator asks of a failover group by way of one of its brokers: what is done, refused and shown."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from broker_ports import BrokerRig
from hypothesis import given
from hypothesis import strategies as st

from mqcore.broker.processors.admin_ha import NO_GROUP
from mqcore.broker.replication import ReplicationFacts, SlaveFacts
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import EngineError, HeaderError, UnfitMemberError
from mqcore.protocol import headers
from mqcore.protocol.bodies import KVTable
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.group_bodies import GroupChange, GroupFacts, MemberStatus
from mqcore.protocol.ha_bodies import HARuntimeInfo

CHANGE = RequestCode.CHANGE_FAILOVER_GROUP
ASKED = {"action": "switch", "member": "2", "epoch": "7", "dryRun": "false"}
FACTS = GroupFacts(
    cluster="C", broker_name="broker-a", me=1, phase="leading", is_master=True, epoch=7, master=1,
    master_address="10.0.0.1:10911", in_sync=frozenset({3, 1}), end=900, confirmed=800, epoch_start=500,
    changed_ms=1_700_000_000_000, why="it was named", engine_silent_ms=12,
    member_statuses=[
        MemberStatus(1, "10.0.0.1:10911", True, True, True, last_epoch=7, end=900, acked=900),
        MemberStatus(2, "10.0.0.2:10911", last_epoch=5, end=400),
        MemberStatus(3, "10.0.0.3:10911", True, True, True, False, True, 7, 850, 800, 100, 20, 5),
        MemberStatus(4, is_removed=True),
    ],
)  # fmt: skip


class ScriptedGroup:
    """A ``GroupControl`` that writes down what it is asked for. Member 9 fits nothing, member 8 finds no engine."""

    member, epoch, is_master = 1, 7, True

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def facts(self) -> GroupFacts:
        return FACTS

    def check_order(self, to: int, *, unclean: bool = False) -> None:
        self._check("check order", to, unclean)

    async def order(self, to: int, *, unclean: bool = False) -> None:
        self._check("order", to, unclean)

    def check_remove(self, member: int) -> None:
        self._check("check remove", member)

    async def remove(self, member: int) -> None:
        self._check("remove", member)

    def _check(self, what: str, member: int, *more: object) -> None:
        self.asked.append((what, member, *more))
        if member == 9:
            raise UnfitMemberError("member 9 is not in sync")
        if member == 8:
            raise EngineError("etcd: nobody answers")


class OneCopy:
    def facts(self) -> ReplicationFacts:
        slave = SlaveFacts("10.0.0.3:4711", "COPYING", 800, 900, 900, 0, 100, 20)
        return ReplicationFacts(900, 800, (slave,), False, 0, 0, 0)


@pytest.fixture
def group() -> ScriptedGroup:
    return ScriptedGroup()


@pytest.fixture
def rig(tmp_path: Path, group: ScriptedGroup) -> BrokerRig:
    return BrokerRig(tmp_path, group=group, replication=OneCopy())


async def test_a_broker_of_no_group_says_so(tmp_path: Path) -> None:
    reply = await BrokerRig(tmp_path).ask(CHANGE, ASKED)
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, NO_GROUP)


@pytest.mark.parametrize(
    ("action", "dry_run", "asked"),
    [
        (GroupChange.SWITCH, "false", ("order", 2, False)),
        (GroupChange.SWITCH, "true", ("check order", 2, False)),
        (GroupChange.UNCLEAN_ELECT, "false", ("order", 2, True)),
        (GroupChange.UNCLEAN_ELECT, "true", ("check order", 2, True)),
        (GroupChange.REMOVE, "false", ("remove", 2)),
        (GroupChange.REMOVE, "true", ("check remove", 2)),
    ],
)
async def test_what_is_asked_for_reaches_the_group_and_a_dry_run_only_checks(
    rig: BrokerRig, group: ScriptedGroup, action: GroupChange, dry_run: str, asked: tuple[object, ...]
) -> None:
    reply = await rig.ask(CHANGE, {**ASKED, "action": action.value, "dryRun": dry_run})
    assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, None)
    assert group.asked == [asked]


async def test_what_was_asked_of_another_epoch_is_not_done(rig: BrokerRig, group: ScriptedGroup) -> None:
    reply = await rig.ask(CHANGE, {**ASKED, "epoch": "6"})
    remark = "the group is at epoch 7, and this was asked of epoch 6"
    assert (reply.code, reply.remark) == (ResponseCode.NO_PERMISSION, remark)
    assert group.asked == []


async def test_a_member_that_does_not_fit_and_an_engine_that_is_away_are_named(rig: BrokerRig) -> None:
    unfit = await rig.ask(CHANGE, {**ASKED, "member": "9"})
    assert (unfit.code, unfit.remark) == (ResponseCode.NO_PERMISSION, "member 9 is not in sync")
    away = await rig.ask(CHANGE, {**ASKED, "member": "8"})
    assert (away.code, away.remark) == (ResponseCode.SYSTEM_ERROR, "EngineError: etcd: nobody answers")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"action": "elect"}, "header field action: got 'elect', wanted one of switch, unclean-elect, remove"),
        ({"action": ""}, "header field action: got ''"),
        ({"member": "two"}, "header field member: got 'two', wanted a 32-bit integer"),
        ({"member": str(1 << 31)}, "header field member"),
        ({"epoch": "-"}, "header field epoch: got '-', wanted a 64-bit integer"),
        ({"dryRun": "ture"}, "header field dryRun: got 'ture', wanted true or false"),
        ({"dryRun": "1"}, "header field dryRun: got '1'"),
        ({"action": None}, "header field action: got nothing"),
        ({"member": None}, "header field member: got nothing"),
        ({"epoch": None}, "header field epoch: got nothing"),
        ({"dryRun": None}, "header field dryRun: got nothing"),
    ],
)
async def test_a_wrong_field_is_named_and_nothing_is_done(
    rig: BrokerRig, group: ScriptedGroup, changes: Mapping[str, str | None], what: str
) -> None:
    fields = {name: value for name, value in {**ASKED, **changes}.items() if value is not None}
    reply = await rig.ask(CHANGE, fields, b"\xff\x00 no body is wanted")
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert f"HeaderError: {what}" in str(reply.remark)
    assert group.asked == []


@given(st.dictionaries(st.sampled_from(sorted(ASKED)), st.text(max_size=20)))
def test_whatever_stands_in_the_header_is_read_or_refused_by_name(fields: dict[str, str]) -> None:
    refused = ""
    try:
        values = headers.decode_request(CHANGE, fields)
    except HeaderError as error:
        refused = str(error.args[0])
    if refused:
        assert refused in ASKED
    else:
        assert set(fields) == set(ASKED)
        assert (type(values["member"]), type(values["epoch"])) == (int, int)


async def test_the_log_says_who_asked_for_what_and_why_it_was_refused(
    rig: BrokerRig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="mqcore.broker.processors.admin_ha"):
        await rig.ask(CHANGE, {**ASKED, "member": "9", "AccessKey": "operator\n"})
    asked, refused = (record.getMessage() for record in caplog.records)
    who = f"by={rig.client.remote_ip}:{rig.client.remote_port} account='operator\\n'"
    assert asked == f"change of the group asked for action=switch member=9 epoch=7 dry_run=False {who}"
    assert refused == "change of the group refused action=switch member=9 why=member 9 is not in sync"


async def test_the_status_has_what_the_broker_knows_of_its_group(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.GET_BROKER_HA_STATUS)
    status = HARuntimeInfo.decode(reply.body)
    assert status.failover_group == FACTS
    assert (status.master, status.role) == (True, "ASYNC_MASTER")
    assert b'"inSync":[1,3]' in reply.body


async def test_the_runtime_table_has_numbers_of_the_group_and_of_each_member_that_was_not_removed(
    rig: BrokerRig,
) -> None:
    table = KVTable.decode((await rig.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    rows = {name: value for name, value in table.items() if name.startswith("failover")}
    assert table["haSlaves"] == "1"
    assert rows == {
        "failoverMember": "1", "failoverPhase": "leading", "failoverIsMaster": "1", "failoverEpoch": "7",
        "failoverMaster": "1", "failoverInSync": "1 3", "failoverInSyncNums": "2", "failoverEnd": "900",
        "failoverConfirmed": "800", "failoverEngineSilentMs": "12", "failoverChangedMs": "1700000000000",
        "failoverWhy": "it was named",
        "failoverMember_1": "there=1 inSync=1 trusted=1 end=900 acked=900 behindBytes=0 behindMs=0",
        "failoverMember_2": "there=0 inSync=0 trusted=0 end=400 acked=-1 behindBytes=0 behindMs=0",
        "failoverMember_3": "there=1 inSync=1 trusted=1 end=850 acked=800 behindBytes=100 behindMs=20",
    }  # fmt: skip


def test_facts_of_a_group_without_a_master_read_and_write_back() -> None:
    facts = replace(FACTS, master=None, is_master=False)
    assert GroupFacts.decode(facts.encode()) == facts


def test_the_number_is_none_of_rocketmqs_and_fits_a_binary_header() -> None:
    request = RemotingCommand(CHANGE, opaque=1, ext_fields=dict(ASKED), serialize_type=1)  # type: ignore[arg-type]
    assert CHANGE < 1 << 15
    assert RemotingCommand.decode(request.encode()[4:]).code == CHANGE
