"""Where settings come from: the program, the environment, a URL, a file; and what is refused, with its source."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import fields
from datetime import datetime
from pathlib import Path

import pytest

from mqcore import aio
from mqcore.client.errors import ConfigError, NoNameServerError
from mqcore.client.settings.classes import ClientSettings, ConsumeFromWhere, ConsumerSettings, ProducerSettings
from mqcore.client.settings.configuration import SECTIONS, Configuration, configure, converted
from mqcore.codes import RequestCode
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.signing import Signer, signature

FILE = """
[client]
name_servers = ["file-host:1"]
call_timeout_s = 1.5
unit_name = "file"
instance_name = "file"

[producer]
retries = 1
retry_response_codes = [2, 14]

[consumer]
from_where = "earliest"
orderly = true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mqcore.toml"
    path.write_text(FILE)
    return path


def client_settings(found: Configuration, **changes: object) -> ClientSettings:
    return found.settings(ClientSettings(), None, changes)


def test_the_program_wins_over_the_environment_over_the_url_over_the_file(file: Path) -> None:
    environment = {"MQCORE_CLIENT_UNIT_NAME": "environment", "MQCORE_CLIENT_INSTANCE_NAME": "environment"}
    url = "rmq://url-host:2?unit_name=url&instance_name=url&call_timeout_s=2&admin_timeout_s=2"
    found = configure(url, file, environment)
    settings = client_settings(found, unit_name="program")
    assert settings.unit_name == "program"
    assert settings.instance_name == "environment"
    assert (settings.call_timeout_s, settings.admin_timeout_s) == (2.0, 2.0)
    assert found.name_servers == ("url-host:2",)
    assert client_settings(configure(None, file, {})).call_timeout_s == 1.5
    assert configure(None, file, {}).name_servers == ("file-host:1",)


def test_name_servers_come_from_where_the_order_says(file: Path) -> None:
    environment = {"NAMESRV_ADDR": "environment-host:3;other:4"}
    assert configure("rmq://url-host:2", file, environment).name_servers == ("environment-host:3", "other:4")
    assert configure("program-host", file, environment).name_servers == ("program-host:9876",)
    assert configure(["a:1", "b:2"], file, environment).name_servers == ("a:1", "b:2")
    assert configure(None, None, {"MQCORE_URL": "rmq://a;b:2"}).name_servers == ("a:9876", "b:2")
    assert configure(None, None, {"MQCORE_CONFIG": str(file)}).name_servers == ("file-host:1",)
    with pytest.raises(NoNameServerError, match="NAMESRV_ADDR"):
        configure(None, None, {})


@pytest.mark.parametrize("variable", ["MQCORE_NAMESRV", "NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR"])
def test_each_variable_that_people_know_names_the_name_servers(variable: str) -> None:
    assert configure(None, None, {variable: "known:9"}).name_servers == ("known:9",)


def test_producers_and_consumers_have_sections_of_their_own(file: Path) -> None:
    found = configure("rmq://a?producer.retries=3&consumer.concurrency=7", file, {"MQCORE_CONSUMER_ORDERLY": "no"})
    producer = found.settings(ProducerSettings(), None, {})
    consumer = found.settings(ConsumerSettings(), None, {"batch_size": 2})
    assert (producer.retries, producer.retry_response_codes) == (3, frozenset({2, 14}))
    assert (consumer.concurrency, consumer.orderly, consumer.batch_size) == (7, False, 2)
    assert consumer.from_where == ConsumeFromWhere.EARLIEST


def test_a_settings_object_of_the_program_is_taken_as_it_is(file: Path) -> None:
    found = configure("a", file, {"MQCORE_PRODUCER_RETRIES": "5"})
    assert found.settings(ProducerSettings(), ProducerSettings(send_timeout_s=9), {}).retries == 2
    assert found.settings(ProducerSettings(), ProducerSettings(), {"retries": 7}).retries == 7


def test_keys_come_from_the_url_and_the_environment_and_are_not_shown() -> None:
    settings = client_settings(configure("rmq://me:s%40cret@a:1", None, {}))
    assert (settings.access_key, settings.secret_key) == ("me", "s@cret")
    assert "s@cret" not in repr(settings)
    environment = {"ROCKETMQ_ACCESS_KEY": "you", "ROCKETMQ_SECRET_KEY": "hidden"}
    settings = client_settings(configure("rmq://me:secret@a:1", None, environment))
    assert (settings.access_key, settings.secret_key) == ("you", "hidden")


@pytest.mark.parametrize(
    ("given", "environment", "wanted"),
    [
        ("rmq://a?retires=3", {}, "rmq://a: unknown setting 'retires'"),
        ("rmq://a?producer.retires=3", {}, "unknown setting 'retires'; did you mean 'retries'"),
        ("rmq://a?prodcuer.retries=3", {}, "unknown section 'prodcuer'; did you mean 'producer'"),
        ("a", {"MQCORE_CONSUMER_CONCURENCY": "3"}, "MQCORE_CONSUMER_CONCURENCY: unknown .* 'concurrency'"),
        ("a", {"MQCORE_PRODUCR_RETRIES": "3"}, "MQCORE_PRODUCR_RETRIES: did you mean 'MQCORE_PRODUCER_RETRIES'"),
        ("a", {"MQCORE_NAMESERV": "b"}, "MQCORE_NAMESERV: did you mean 'MQCORE_NAMESRV'"),
        ("a", {"MQCORE_PRODUCER_RETRIES": "x"}, "MQCORE_PRODUCER_RETRIES: setting retries: got 'x', wanted a whole"),
        ("a", {"MQCORE_CONSUMER_ORDERLY": "perhaps"}, "setting orderly: got 'perhaps', wanted true or false"),
        ("rmq://a:b@c/d", {}, "URL rmq://c: wanted rmq://"),
        ("rmqs://a", {}, "name server address"),
        ("rmq://ak@a", {}, "no secret key"),
        ("rmq://ak:verysecret@a?x=1", {}, "rmq://a: unknown setting 'x'"),
        ("rmq:///?x=1", {}, "wanted rmq://"),
    ],
)
def test_what_cannot_stand_is_refused_with_its_source(given: str, environment: dict[str, str], wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted) as caught:
        configure(given, None, environment)
    assert "verysecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x = 1", "stands outside of the tables"),
        ("[client]\nnope = 1", "unknown setting 'nope'"),
        ("[clinet]\nunit_name = 'a'", "unknown section 'clinet'; did you mean 'client'"),
        ("[client", "mqcore.toml: "),
        ("[producer]\nretry_response_codes = ['a']", "setting retry_response_codes: got 'a', wanted a whole number"),
    ],
)
def test_a_file_that_cannot_stand_is_refused_with_its_name(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "mqcore.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=wanted) as caught:
        configure("a", path, {})
    assert "mqcore.toml" in str(caught.value)


@pytest.mark.parametrize("variable", ["MQCORE_SERVICE_HOST", "MQCORE_PORT", "MQCORE_PORT_9876_TCP_ADDR", "MQCORE_HOME"])
def test_variables_that_only_begin_like_ours_are_left_alone(variable: str) -> None:
    assert configure("a", None, {variable: "10.0.0.1"}).name_servers == ("a:9876",)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: No such file"):
        configure("a", tmp_path / "absent.toml", {})


def test_a_value_out_of_range_is_refused_when_it_is_used() -> None:
    found = configure("a", None, {"MQCORE_PRODUCER_RETRIES": "-1"})
    with pytest.raises(ConfigError, match="retries"):
        found.settings(ProducerSettings(), None, {})


def test_a_moment_is_a_date_or_seconds() -> None:
    assert converted("2024-05-06T07:08:09", ConsumerSettings, "from_timestamp") == datetime(2024, 5, 6, 7, 8, 9)
    assert converted("1.5", ConsumerSettings, "from_timestamp") == 1.5


@pytest.mark.parametrize("section", SECTIONS)
def test_every_default_survives_being_written_as_text(section: str) -> None:
    cls = SECTIONS[section]
    defaults = cls()
    for found in fields(cls):  # type: ignore[arg-type]
        value = getattr(defaults, found.name)
        if isinstance(value, str | int | float):
            made = type(defaults)(**{found.name: converted(str(value), cls, found.name)})
            assert getattr(made, found.name) == value


def test_the_client_takes_its_settings_from_everywhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQCORE_CLIENT_UNIT_NAME", "environment")
    mq = aio.Client("rmq://a:1?admin_timeout_s=2", config_file=file, heartbeat_interval_s=3)
    settings = mq.instance.settings
    assert (settings.unit_name, settings.admin_timeout_s, settings.heartbeat_interval_s) == ("environment", 2.0, 3)
    assert mq.client_id.endswith("@file@environment")
    with pytest.raises(TypeError, match="did you mean 'unit_name'"):
        aio.Client("a", unitname="x")


def test_a_request_is_signed_over_its_fields_in_order_and_its_body() -> None:
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields={"b": "Orders", "a": "group"}, body=b"{}")
    Signer("me", "secret", "token")("a:1", command)
    assert command.ext_fields is not None
    signed = "me" + "token" + "group" + "Orders"  # AccessKey, SecurityToken, a, b
    wanted = base64.b64encode(hmac.digest(b"secret", signed.encode() + b"{}", hashlib.sha1)).decode()
    assert command.ext_fields["Signature"] == wanted
    assert command.ext_fields["AccessKey"] == "me"
    Signer("me", "secret", "token")("b:1", command)  # the same request again, to another broker
    assert command.ext_fields["Signature"] == wanted


def test_what_a_broker_leaves_out_of_a_signature_is_left_out() -> None:
    plain = {"AccessKey": "me", "topic": "Orders"}
    assert signature({**plain, "_UNIQUE_KEY_QUERY": "true"}, b"", b"s") == signature(plain, b"", b"s")
