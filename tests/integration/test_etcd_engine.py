"""etcd as the engine of a group: what a broker may rely on, shown with the real one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqcore.address import Address
from mqcore.broker.failover.coordinator import Outcome
from mqcore.broker.failover.effects import SwapState
from mqcore.broker.failover.etcd import EtcdEngine
from mqcore.broker.failover.facts import Announcement, GroupOrder
from mqcore.broker.failover.group_keys import Change, GroupView, KnownMember, encode
from mqcore.broker.failover.group_state import GroupState
from mqcore.broker.failover.http_json import HttpJson
from mqcore.errors import EngineError, ProtocolError
from tests.rigs import certificates
from tests.rigs import etcd as rig
from tests.rigs.certificates import Authority
from tests.rigs.etcd import Etcd
from tests.rigs.ports import free_port

pytestmark = pytest.mark.skipif(bool(rig.missing_tools()), reason=f"etcd cannot run here: {rig.missing_tools()}")

STATE = GroupState(1, 0, "a process", "127.0.0.1:10911", frozenset({0}))
LEASE_S = 2
PATIENCE_S = 60.0


def address_of(server: Etcd) -> Address:
    return Address("127.0.0.1", server.client_port)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as server:
        server.await_ready()
        yield server


@pytest.fixture
async def engine(server: Etcd, request: pytest.FixtureRequest) -> AsyncIterator[EtcdEngine]:
    engine = EtcdEngine([address_of(server)], "cluster", request.node.name, timeout_s=PATIENCE_S)
    yield engine
    engine.close()


def again(engine: EtcdEngine, server: Etcd, name: str) -> EtcdEngine:
    """The engine of another process of the same group."""
    return EtcdEngine([address_of(server)], "cluster", name, timeout_s=PATIENCE_S)


async def test_a_group_begins_once_and_changes_by_comparison_alone(engine: EtcdEngine) -> None:
    assert await engine.read() == (0, None)
    outcome, first, state = await engine.swap(SwapState(0, STATE))
    assert (outcome, state) == (Outcome.DONE, STATE)
    assert await engine.read() == (first, STATE)
    # Who comes second learns what is there.
    other = replace(STATE, nonce="another process")
    assert await engine.swap(SwapState(0, other)) == (Outcome.REFUSED, first, STATE)
    successor = replace(STATE, epoch=2, isr=frozenset({0, 2}))
    outcome, second, state = await engine.swap(SwapState(first, successor))
    assert (outcome, state) == (Outcome.DONE, successor)
    assert second > first
    assert await engine.swap(SwapState(first, other)) == (Outcome.REFUSED, second, successor)
    # The same one again, as after an answer that was lost: refused, with itself as what is there.
    assert await engine.swap(SwapState(first, successor)) == (Outcome.REFUSED, second, successor)


async def test_groups_do_not_see_each_other(engine: EtcdEngine, server: Etcd) -> None:
    beside = again(engine, server, "another group")
    assert (await beside.swap(SwapState(0, STATE)))[0] is Outcome.DONE
    assert await engine.read() == (0, None)
    beside.close()


async def test_changes_are_watched_in_their_order_from_where_was_read(engine: EtcdEngine) -> None:
    _, first, _ = await engine.swap(SwapState(0, STATE))
    _, second, _ = await engine.swap(SwapState(first, replace(STATE, epoch=2)))
    seen: list[Change] = []
    async with asyncio.timeout(PATIENCE_S):
        async for change in engine.watch(first):
            seen.append(change)
            if len(seen) == 1:
                assert await engine.announce("alive/0", b"here", LEASE_S)
            elif len(seen) == 2:
                await engine.leave()
            else:
                break
    assert [(change.key, change.value) for change in seen] == [
        ("state", replace(STATE, epoch=2).encode()),
        ("alive/0", b"here"),
        ("alive/0", None),
    ]
    assert seen[0].revision == second
    assert second < seen[1].revision < seen[2].revision


async def test_a_name_is_one_process_until_its_lease_ends(
    engine: EtcdEngine, server: Etcd, request: pytest.FixtureRequest
) -> None:
    other = again(engine, server, request.node.name)
    assert await engine.announce("alive/1", b"first", LEASE_S)
    assert not await other.announce("alive/1", b"second", LEASE_S)
    # Renewed, and with other words.
    assert await engine.announce("alive/1", b"more", LEASE_S)
    # It is not renewed any more, as if its process had died.
    async with asyncio.timeout(PATIENCE_S):
        while not await other.announce("alive/1", b"second", LEASE_S):
            await asyncio.sleep(0.1)
    # And it is told so when it comes back.
    assert not await engine.announce("alive/1", b"first", LEASE_S)
    await other.leave()
    assert await engine.announce("alive/1", b"first", LEASE_S)
    other.close()


async def test_all_that_a_group_has_is_read_as_of_one_moment(engine: EtcdEngine) -> None:
    empty = GroupView.of(await engine.read_all())
    assert (empty.state, empty.members, empty.alive, empty.order, empty.next_id) == (None, {}, {}, None, 1)
    assert await engine.create("members/0", encode(KnownMember("a uuid", 5)))
    assert not await engine.create("members/0", encode(KnownMember("another", 6)))
    _, revision, _ = await engine.swap(SwapState(0, STATE))
    said = Announcement(1, 100, True, 2, nonce=7, address="a:1", ha_address="a:2")
    assert await engine.announce("alive/0", encode(said), LEASE_S)
    order = GroupOrder(1, 1, unclean=True)
    await engine.put("order", encode(order))
    await engine.put("alive/1", b"what no broker writes")
    view = GroupView.of(await engine.read_all())
    assert (view.state, view.state_revision) == (STATE, revision)
    assert view.revision >= revision + 3
    assert view.cluster == empty.cluster
    assert view.members == {0: KnownMember("a uuid", 5)}
    assert (view.id_of("a uuid"), view.id_of("another"), view.next_id) == (0, None, 1)
    assert view.alive == {0: said}
    assert view.order == order
    # And from there on it is kept up.
    view.take([Change("alive/0", None, view.revision + 1), Change("members/2", encode(KnownMember("c", 7, True)), 9)])
    assert view.alive == {}
    assert view.next_id == 3
    await engine.leave()


async def test_what_nobody_of_the_group_has_written_is_refused(engine: EtcdEngine, server: Etcd) -> None:
    connection = HttpJson(address_of(server))
    key = base64.b64encode(engine._prefix + b"state").decode()
    await connection.post("/v3/kv/put", {"key": key, "value": base64.b64encode(b"{}").decode()}, {})
    with pytest.raises(ProtocolError, match="group state: got"):
        await engine.read()
    connection.close()


async def test_an_engine_that_does_not_answer_leaves_a_swap_unknown(tmp_path: Path) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    silent = await asyncio.start_server(swallow, "127.0.0.1", 0)
    engine = EtcdEngine([Address("127.0.0.1", silent.sockets[0].getsockname()[1])], "cluster", "name")
    assert await engine.swap(SwapState(0, STATE)) == (Outcome.UNKNOWN, 0, None)
    with pytest.raises(EngineError, match="has not answered /v3/kv/range"):
        await engine.read()
    silent.close()
    nobody = EtcdEngine([Address("127.0.0.1", free_port())], "cluster", "name")
    with pytest.raises(EngineError, match=r"none of 127\.0\.0\.1:[0-9]+ can be reached"):
        await nobody.read()
    assert (await nobody.swap(SwapState(0, STATE)))[0] is Outcome.UNKNOWN


async def test_what_is_no_engine_is_named(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(talk, "127.0.0.1", 0)
    engine = EtcdEngine([Address("127.0.0.1", other.sockets[0].getsockname()[1])], "cluster", "name")
    with pytest.raises(EngineError, match="is this an engine's client port"):
        await engine.read()
    other.close()


async def test_a_cluster_serves_while_one_of_three_is_gone(tmp_path: Path) -> None:
    members = [Etcd(tmp_path, name) for name in "abc"]
    with contextlib.ExitStack() as stack:
        for member in members:
            stack.push(member.__exit__)
            member.start([each.peer for each in members])
        for member in members:
            member.await_ready()
        engine = EtcdEngine([address_of(member) for member in members], "cluster", "name", timeout_s=5.0)
        _, revision, _ = await engine.swap(SwapState(0, STATE))
        members[0].kill()
        successor = replace(STATE, epoch=2)
        async with asyncio.timeout(PATIENCE_S):
            outcome = Outcome.UNKNOWN
            while outcome is Outcome.UNKNOWN:
                outcome, _, state = await engine.swap(SwapState(revision, successor))
        # An answer may have been lost: then it is refused, for itself.
        assert state == successor
        assert (await engine.read())[1] == successor
        engine.close()


async def test_users_sign_in_and_sign_in_again_when_their_token_ends(tmp_path: Path) -> None:
    with Etcd(tmp_path) as server:
        server.await_ready()
        connection = HttpJson(address_of(server))
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            status, answer = await connection.post(f"/v3/auth/{path}", body, {})
            assert status == 200, answer
        connection.close()
        engine = EtcdEngine([address_of(server)], "c", "n", user="root", password="secret", timeout_s=PATIENCE_S)
        assert (await engine.swap(SwapState(0, STATE)))[0] is Outcome.DONE
        engine._headers = {"Authorization": "a token that has ended"}
        assert (await engine.read())[1] == STATE
        engine.close()
        stranger = EtcdEngine([address_of(server)], "c", "n", user="root", password="guess", timeout_s=PATIENCE_S)
        with pytest.raises(EngineError, match="user 'root' was refused") as refusal:
            await stranger.read()
        assert "guess" not in str(refusal.value)
        stranger.close()


@pytest.mark.skipif(certificates.OPENSSL is None, reason=certificates.NO_OPENSSL)
async def test_certificates_are_asked_for_and_shown(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    shown = authority.sign("/CN=broker")
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(shown.certificate, shown.key)
    with Etcd(tmp_path, pair=authority.sign(), authority=authority) as server:
        engine = EtcdEngine([address_of(server)], "cluster", "name", context=context)
        async with asyncio.timeout(PATIENCE_S):
            while (await engine.swap(SwapState(0, STATE)))[0] is Outcome.UNKNOWN:
                await asyncio.sleep(0.1)
        assert (await engine.read())[1] == STATE
        engine.close()
        bare = ssl.create_default_context(cafile=str(authority.certificate))
        stranger = EtcdEngine([address_of(server)], "cluster", "name", context=bare)
        with pytest.raises(EngineError):
            await stranger.read()
        stranger.close()
