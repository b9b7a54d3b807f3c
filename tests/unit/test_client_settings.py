"""Settings are refused by name when they are unknown, out of range or contradict each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mqcore.client.produce.producer import compression_named
from mqcore.client.session.identity import client_id
from mqcore.client.settings.addresses import parse_addresses
from mqcore.client.settings.checked import Checked, changed
from mqcore.client.settings.classes import (
    ClientSettings,
    ConsumeFromWhere,
    ConsumerSettings,
    MessageModel,
    ProducerSettings,
)
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.errors import ConfigError


def test_a_misspelt_setting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match="unknown setting 'concurency'; did you mean 'concurrency'"):
        changed(ConsumerSettings(), {"concurency": 3})


def test_a_setting_that_is_like_no_other_is_refused_with_the_list() -> None:
    with pytest.raises(TypeError, match=r"unknown setting 'xyz'; known settings: send_timeout_s, retries"):
        changed(ProducerSettings(), {"xyz": 3})


def test_a_change_keeps_the_other_settings() -> None:
    settings = changed(ProducerSettings(retries=7), {"send_timeout_s": 1.5})
    assert (settings.retries, settings.send_timeout_s) == (7, 1.5)


@pytest.mark.parametrize("value", [0, 1001, -5, "20", None, True])
def test_a_value_out_of_range_or_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="setting concurrency: got"):
        changed(ConsumerSettings(), {"concurrency": value})


@pytest.mark.parametrize(
    ("settings", "name", "value", "wanted"),
    [
        (ConsumerSettings(), "batch_size", 2.0, "a whole number"),
        (ConsumerSettings(), "orderly", "yes", "True or False"),
        (ConsumerSettings(), "orderly", 1, "True or False"),
        (ConsumerSettings(), "offsets_dir", 7, "Path or text"),
        (ConsumerSettings(), "retry", 5, "Backoff"),
        (ConsumerSettings(), "from_where", None, "ConsumeFromWhere or text"),
        (PullConsumerSettings(), "from_timestamp", "yesterday", "datetime or a number"),
        (ProducerSettings(), "send_timeout_s", float("nan"), "a number"),
        (ProducerSettings(), "send_timeout_s", float("inf"), "a number"),
        (ProducerSettings(), "compression", None, "text"),
        (ClientSettings(), "client_ip", 127, "text"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_the_kind_wanted(
    settings: Checked, name: str, value: object, wanted: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(settings, {name: value})
    assert str(caught.value) == f"setting {name}: got {value!r}, wanted {wanted}"


def test_a_whole_number_will_do_for_a_number() -> None:
    assert changed(ProducerSettings(), {"send_timeout_s": 5}).send_timeout_s == 5


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("earliest", ConsumeFromWhere.EARLIEST),
        ("LATEST", ConsumeFromWhere.LATEST),
        ("timestamp", ConsumeFromWhere.TIMESTAMP),
        ("CONSUME_FROM_FIRST_OFFSET", ConsumeFromWhere.EARLIEST),
    ],
)
def test_where_to_begin_may_be_said_in_words(text: str, wanted: ConsumeFromWhere) -> None:
    assert ConsumerSettings(from_where=text).from_where is wanted


def test_words_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="from_where: got 'begin', wanted earliest, latest or timestamp"):
        ConsumerSettings(from_where="begin")
    with pytest.raises(ConfigError, match="message_model: got 'queue', wanted clustering or broadcasting"):
        ConsumerSettings(message_model="queue")


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="wanted more than hold_timeout_s"):
        ConsumerSettings(hold_timeout_s=20, pull_timeout_s=20)
    with pytest.raises(ConfigError, match="only a broadcasting group"):
        ConsumerSettings(offsets_dir=Path("/nowhere"))
    assert ConsumerSettings(offsets_dir=Path("/nowhere"), message_model="broadcasting").offsets_dir == Path("/nowhere")


def test_the_reconsume_limit_depends_on_the_order() -> None:
    assert ConsumerSettings().max_reconsume_times_effective == 16
    assert ConsumerSettings(orderly=True).max_reconsume_times_effective == 2_147_483_647
    assert ConsumerSettings(orderly=True, max_reconsume_times=3).max_reconsume_times_effective == 3


def test_models_are_strings_as_on_the_wire() -> None:
    assert ConsumerSettings(message_model="Broadcasting").message_model == MessageModel.BROADCASTING == "BROADCASTING"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("127.0.0.1:9876", ("127.0.0.1:9876",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 , b ", ("a:1", "b:9876")),
        ("http://mq.example/", ("mq.example:9876",)),
        ("[::1]:9999;[::1]", ("[::1]:9999", "[::1]:9876")),
        ("a:1;a:1", ("a:1",)),
    ],
)
def test_name_servers_are_read_from_text(text: str, wanted: tuple[str, ...]) -> None:
    assert parse_addresses(text) == wanted


@pytest.mark.parametrize("text", ["", ";", "a:b", "a:0", "a:65536", ":9876"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="name server address: got"):
        parse_addresses(text)


def test_client_ids_are_new_each_time_unless_the_user_chose_a_name() -> None:
    settings = ClientSettings(client_ip="10.0.0.1")
    assert client_id(settings) != client_id(settings)
    assert client_id(settings, stable=True) == "10.0.0.1@DEFAULT"
    named = ClientSettings(client_ip="10.0.0.1", instance_name="one", unit_name="u")
    assert client_id(named) == client_id(named, stable=True) == "10.0.0.1@one@u"


@pytest.mark.parametrize(("codec", "package"), [("lz4", "lz4.frame"), ("zstd", "zstandard")])
def test_a_codec_that_is_not_installed_is_refused_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, codec: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs the package {package}: install mqcore\[{codec}\]"):
        compression_named(codec, 5)


@pytest.mark.parametrize(("codec", "level"), [("zlib", 10), ("zstd", 23), ("zlib", -1)])
def test_a_level_that_the_codec_has_not_is_refused(codec: str, level: int) -> None:
    with pytest.raises(ConfigError, match=f"compression level of {codec}: got {level}, wanted 0 to"):
        compression_named(codec, level)


def test_codecs_are_chosen_by_name() -> None:
    assert [compression_named(name, 9) for name in ("zlib", "LZ4", "zstd")] == [3, 1, 2]
    assert compression_named("none", 99) is None
    with pytest.raises(ConfigError, match="setting compression: got 'gzip', wanted zlib, lz4, zstd or none"):
        compression_named("gzip", 5)


def test_the_access_channel_is_local_or_cloud() -> None:
    assert ClientSettings(access_channel="cloud").access_channel == "CLOUD"
    with pytest.raises(ConfigError, match="setting access_channel: got 'SKY', wanted LOCAL or CLOUD"):
        ClientSettings(access_channel="sky")
