"""BrokerCore as a whole: which code goes where, what happens to errors, start and shutdown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_ports import BrokerRig, MemoryChannel, settle, subscription

from mqcore.broker.pools import POOLS
from mqcore.broker.processors.table import TABLE, Port, row_for
from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol import fastjson
from mqcore.protocol.command import RemotingCommand

ACCESS = {50: 209, 51: 210, 52: 1, 53: 211, 54: 1}
SERVED = list(TABLE)

BROKER_ROWS_OF_4_9 = {
    10, 11, 12, 14, 15, 17, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 43, 45, 46, 50, 51, 52, 53,
    200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 300, 303, 305, 306, 307, 308, 309, 310, 314, 315, 316, 317,
    320, 321, 323, 324, 325, 328, 329,
}  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path) -> BrokerRig:
    return BrokerRig(tmp_path)


OF_RELEASE_5 = {
    18,
    60,
    61,
    225,
    343,
    345,
    351,
    352,
    361,
    370,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_BROKER_EPOCH_CACHE,
}
OF_BEFORE = {RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG}
OF_OUR_OWN = {RequestCode.CHANGE_FAILOVER_GROUP}


def test_the_table_has_every_request_that_a_broker_of_4_9_takes() -> None:
    assert set(TABLE) >= BROKER_ROWS_OF_4_9
    assert set(TABLE) - BROKER_ROWS_OF_4_9 == OF_RELEASE_5 | OF_BEFORE | OF_OUR_OWN


@pytest.mark.parametrize(
    ("code", "pool"),
    [
        (10, "send"), (310, "send"), (320, "send"), (36, "send"),
        (11, "pull"), (361, "pull"), (12, "query"), (33, "query"),
        (34, "heartbeat"), (35, "client_manage"), (46, "client_manage"),
        (38, "consumer_manage"), (14, "consumer_manage"), (15, "consumer_manage"),
        (37, "end_transaction"), (324, "reply"), (325, "reply"), (17, "admin"),
    ],
)  # fmt: skip
def test_codes_belong_to_their_pool(code: int, pool: str) -> None:
    assert TABLE[code].pool == pool
    assert pool in POOLS


def test_only_pulls_are_missing_on_the_fast_port() -> None:
    assert {code for code in TABLE if row_for(code, is_vip=True) is None} == {11, 361}
    assert all(Port.MAIN in row.ports for row in TABLE.values())


@pytest.mark.parametrize("code", sorted(SERVED))
async def test_every_served_code_has_a_handler_that_answers(rig: BrokerRig, code: int) -> None:
    reply = await rig.ask(RequestCode(code))
    assert reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize("code", sorted(ACCESS))
async def test_without_access_control_there_are_no_accounts_to_ask_for(rig: BrokerRig, code: int) -> None:
    reply = await rig.ask(RequestCode(code), {"accessKey": "somebody", "globalWhiteAddrs": "10.0.0.1", "admin": "true"})
    assert (reply.code, reply.remark) == (ACCESS[code], "access control is off: aclEnable is false")


@pytest.mark.parametrize("code", [13, 22, 23, 27, 209, 301, 302, 400, 353, 200050, 999_999])
async def test_unknown_codes_are_not_supported_even_oneway(rig: BrokerRig, code: int) -> None:
    for oneway in (False, True):
        request = RemotingCommand(code, opaque=1, flag=2 if oneway else 0)
        reply = await rig.core.handle(rig.client, request)
        assert reply is not None
        assert (reply.code, reply.remark) == (3, f" request type {code} not supported")


async def test_an_error_becomes_an_answer(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders"})
    assert (reply.code, reply.ext_fields) == (1, None)
    assert (reply.remark or "").startswith("HeaderError: header field queueId")


async def test_an_unexpected_error_becomes_an_answer_too(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(topic: str, queue_id: int) -> int:
        raise RuntimeError("torn")

    monkeypatch.setattr(rig.store, "max_offset", broken)
    reply = await rig.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": 0})
    assert (reply.code, reply.remark) == (1, "RuntimeError: torn")


async def test_a_oneway_request_is_done_and_not_answered(rig: BrokerRig) -> None:
    ext = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 5}
    assert await rig.tell(RequestCode.UPDATE_CONSUMER_OFFSET, ext, oneway=True) is None
    assert rig.broker.offsets.query("g", "orders", 0) == 5
    assert await rig.tell(RequestCode.UPDATE_CONSUMER_OFFSET, {}, oneway=True) is None


async def test_a_binary_request_gets_a_binary_answer(rig: BrokerRig) -> None:
    request = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG, opaque=4, serialize_type=1)  # type: ignore[arg-type]
    reply = await rig.core.handle(rig.client, request)
    assert reply is not None
    assert (reply.opaque, reply.serialize_type) == (4, 1)


async def test_start_and_shutdown_without_name_servers(rig: BrokerRig) -> None:
    await rig.core.start()
    await settle()
    await rig.heart_beat("g", [subscription("orders")])
    rig.broker.offsets.commit("g", "orders", 0, 5, "c")
    before = len(asyncio.all_tasks())
    await rig.core.shutdown()
    assert before > 1
    assert len(asyncio.all_tasks()) == 1
    assert fastjson.loads(rig.config_text("consumerOffset.json")) == {"offsetTable": {"orders@g": {"0": 5}}}
    assert fastjson.loads(rig.config_text("delayOffset.json")) == {"offsetTable": {}}


async def test_start_samples_the_totals_at_once(rig: BrokerRig) -> None:
    await rig.core.start()
    await settle()
    reply = await rig.ask(RequestCode.GET_BROKER_RUNTIME_INFO, channel=MemoryChannel(is_vip=True))
    assert reply.code == 0
    await rig.core.shutdown()


async def test_a_broken_table_stops_the_load(rig: BrokerRig) -> None:
    config = rig.root / "store" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text("{")
    (config / "topics.json.bak").write_text("{")
    with pytest.raises(Exception, match=r"topics\.json\.bak"):
        rig.reopen()
