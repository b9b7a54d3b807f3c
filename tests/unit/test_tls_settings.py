"""What the settings of TLS may say, where they stand, and what is never said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.config import ClientAuth, Program, Settings, TlsMode, load
from mqcore.errors import ConfigError, TlsError
from mqcore.transport.tls import ServerMaterial, client_context, memory_file

PAIR = {"tls.test.mode.enable": "false", "tls.server.certPath": "/c.pem", "tls.server.keyPath": "/k.pem"}


def broker(**overrides: str) -> Settings:
    return load(overrides={"bindAddress": "127.0.0.1", **overrides}, environment={})


def test_defaults_are_those_of_rocketmq() -> None:
    tls = broker().tls
    assert (tls.server_mode, tls.test_mode_enable, tls.use_tls) == (TlsMode.PERMISSIVE, True, False)
    assert tls.server_need_client_auth is ClientAuth.NONE
    assert not tls.server_auth_client
    assert not tls.client_auth_server


def test_an_enforcing_broker_calls_with_tls_unless_told_otherwise() -> None:
    assert broker(tlsMode="enforcing").tls.use_tls
    assert not broker(tlsMode="enforcing", useTLS="false").tls.use_tls
    assert broker(**{"tls.enable": "true"}).tls.use_tls


@pytest.mark.parametrize("program", list(Program))
def test_the_file_of_tls_is_read_after_the_others_and_before_the_command_line(tmp_path: Path, program: Program) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.mode=enforcing\ntls.server.keyPassword=from file\ntls.server.certPath=rel.pem\n")
    other = tmp_path / "server.conf"
    other.write_text(f"tls.config.file={file}\ntls.server.mode=disabled\n")
    tls = load(program, files=[other], overrides={"tls.server.keyPassword": "given"}, environment={}).tls
    assert (tls.server_mode, tls.server_key_password) == (TlsMode.ENFORCING, "given")
    assert tls.server_cert_path == str(Path("rel.pem").absolute())


def test_the_file_of_tls_has_nothing_else_to_say(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("listenPort=1\n")
    with pytest.raises(ConfigError, match=r"listenPort: not a setting of TLS \(.*tls.properties:1\)"):
        broker(**{"tls.config.file": str(file)})


def test_a_file_of_tls_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        broker(**{"tls.config.file": str(tmp_path / "nothing")})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tls.server.mode": "ENFORCING"}, "wanted one of disabled, permissive, enforcing"),
        ({"tls.server.need.client.auth": "maybe"}, "wanted one of none, optional, require"),
        ({"tls.test.mode.enable": "false"}, "tls.server.keyPath: got '', wanted a file"),
        ({**PAIR, "tls.client.certPath": "/x.pem"}, "tls.client.keyPath: got '', wanted a file"),
        ({**PAIR, "tls.server.need.client.auth": "require"}, "tls.server.authClient: got 'False', wanted true"),
    ],
)
def test_half_a_wish_stops_the_start(changes: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        broker(**changes)


def test_without_tls_no_certificate_is_needed() -> None:
    assert broker(**{"tls.test.mode.enable": "false", "tls.server.mode": "disabled"}).tls.server_cert_path == ""


def test_secrets_are_neither_printed_nor_shown_and_travel_all_the_same() -> None:
    settings = broker(**PAIR, **{"tls.server.keyPassword": "open sesame", "tls.client.keyPassword": "open sesame"})
    assert "sesame" not in settings.as_properties()
    assert "sesame" not in repr(settings.tls)
    assert Settings.from_json(settings.to_json()).tls == settings.tls
    material = ServerMaterial(b"certificate", b"key", "open sesame", b"", True, "here")
    assert "sesame" not in repr(material)
    assert ServerMaterial.from_json(material.to_json()) == material


def test_no_setting_of_tls_changes_over_the_wire() -> None:
    keys = ["tls.server.mode", "tlsMode", "tls.config.file", "tls.server.certPath", "tls.server.keyPassword", "useTLS"]
    assert broker().unchangeable_among(keys) == tuple(keys)


def test_calls_without_tls_have_no_context() -> None:
    assert client_context(broker().tls) is None
    context = client_context(broker(useTLS="true").tls)
    assert context is not None
    assert not context.check_hostname


def test_files_of_calls_are_named_when_they_are_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match=r"tls.client.trustCertPath: cannot read /nowhere.pem"):
        client_context(
            broker(
                **PAIR,
                **{"useTLS": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": "/nowhere.pem"},
            ).tls
        )


def test_a_memory_file_is_gone_afterwards() -> None:
    with memory_file(b"bytes") as path:
        assert Path(path).read_bytes() == b"bytes"
    assert not Path(path).exists()
