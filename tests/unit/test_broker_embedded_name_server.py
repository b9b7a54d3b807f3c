"""The name server inside the broker: one program, one set of settings, and files where the settings say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqcore.broker.embedded_name_server import EmbeddedNameServer
from mqcore.broker.live_settings import LiveSettings
from mqcore.codes import RequestCode
from mqcore.config import Settings, load
from mqcore.errors import ConfigError, RemotingConnectError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_request
from mqcore.transport.client import RemotingClient

TIMEOUT_S = 30.0
OWN = {"bindAddress": "127.0.0.1", "namesrvListenPort": "0"}


@dataclass
class Rig:
    """A started name server, the broker's settings around it, and a connection to it."""

    server: EmbeddedNameServer
    live: LiveSettings
    client: RemotingClient

    async def call(self, code: RequestCode, body: bytes = b"", **header: str) -> RemotingCommand:
        ext_fields = encode_request(code, **header) if header else None
        address = f"127.0.0.1:{self.server.port}"
        answer = await self.client.invoke(address, RemotingCommand(code, ext_fields=ext_fields, body=body), TIMEOUT_S)
        assert (answer.code, answer.remark) == (0, None)
        return answer

    async def shown(self, key: str) -> tuple[str, str]:
        """What the broker and the name server show for *key*."""
        texts = self.live.current.as_properties(), (await self.call(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
        broker, name_server = (dict(line.split("=", 1) for line in text.splitlines()) for text in texts)
        return broker[key], name_server[key]


async def started(settings: Settings, config_path: Path | None = None) -> Rig:
    server = EmbeddedNameServer(settings)
    live = LiveSettings(await server.bind(), lambda: 1, config_path)
    await server.serve()
    server.follow(live)
    return Rig(server, live, RemotingClient())


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    overrides = OWN | {
        "storePathRootDir": str(tmp_path / "store"),
        "kvConfigPath": str(tmp_path / "elsewhere" / "table.json"),
        "configStorePath": str(tmp_path / "elsewhere" / "changed.properties"),
        "orderMessageEnable": "true",
        "frameMaxLength": "100000",
    }
    rig = await started(load(overrides=overrides, environment={}), tmp_path / "broker.conf")
    yield rig
    await rig.client.close()
    await rig.server.stop()


async def test_its_tables_lie_where_the_broker_says_that_they_do(rig: Rig, tmp_path: Path) -> None:
    await rig.call(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
    path = tmp_path / "elsewhere" / "table.json"
    assert '"k":"v"' in path.read_text()
    assert await rig.shown("kvConfigPath") == (str(path), str(path))
    assert not (tmp_path / "store").exists(), "nothing lies anywhere else"


async def test_without_paths_its_files_lie_in_the_store_and_are_shown_there(tmp_path: Path) -> None:
    rig = await started(load(overrides=OWN | {"storePathRootDir": str(tmp_path)}, environment={}))
    try:
        await rig.call(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
        path = tmp_path / "config" / "namesrv" / "kvConfig.json"
        assert '"k":"v"' in path.read_text()
        assert await rig.shown("kvConfigPath") == (str(path), str(path))
        changed = str(path.with_name("namesrv.properties"))
        assert await rig.shown("configStorePath") == (changed, changed)
    finally:
        await rig.client.close()
        await rig.server.stop()


async def test_it_goes_by_what_the_broker_was_told(rig: Rig) -> None:
    assert await rig.shown("orderMessageEnable") == ("true", "true")
    assert await rig.shown("frameMaxLength") == ("100000", "100000")


async def test_a_change_at_the_name_server_holds_for_the_broker_and_is_written_down(rig: Rig, tmp_path: Path) -> None:
    await rig.call(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=false\n")
    assert await rig.shown("orderMessageEnable") == ("false", "false")
    assert (tmp_path / "elsewhere" / "changed.properties").read_text() == "orderMessageEnable=false\n"
    assert (tmp_path / "broker.conf").read_text() == "orderMessageEnable=false\n", "or the next start would undo it"


async def test_a_change_at_the_broker_holds_for_the_name_server(rig: Rig) -> None:
    await rig.live.update({"orderMessageEnable": "false"})
    assert await rig.shown("orderMessageEnable") == ("false", "false")


async def test_nobody_is_let_in_before_there_is_a_broker_to_find(tmp_path: Path) -> None:
    server = EmbeddedNameServer(load(overrides=OWN | {"storePathRootDir": str(tmp_path)}, environment={}))
    client = RemotingClient()
    try:
        address = str((await server.bind()).namesrv_addresses[0])
        with pytest.raises(RemotingConnectError, match="failed"):
            await client.connect(address, TIMEOUT_S)
        await server.serve()
        assert not (await client.connect(address, TIMEOUT_S)).is_closed
    finally:
        await client.close()
        await server.stop()


async def test_a_port_that_is_taken_is_named(rig: Rig, tmp_path: Path) -> None:
    taken = {"storePathRootDir": str(tmp_path), "namesrvListenPort": str(rig.server.port)}
    server = EmbeddedNameServer(load(overrides=OWN | taken, environment={}))
    with pytest.raises(ConfigError, match=rf"namesrvListenPort: cannot listen on 127.0.0.1:{rig.server.port}: .*-n"):
        await server.bind()
