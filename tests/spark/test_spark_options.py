"""Options: names, aliases, values, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.errors import ConfigError
from mqcore.spark.options import OPTIONS, Use, option_table, read_options
from mqcore.spark.settings import sink_settings, source_settings

GIVEN = {"nameServer": "127.0.0.1:9876", "subscribe": "T"}
GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "spark.md"


def test_names_are_read_in_any_case_as_spark_gives_them() -> None:
    assert read_options({"NAMESERVER": "a:1", "maxoffsetspertrigger": "7"}, Use.STREAM)["maxOffsetsPerTrigger"] == 7


@pytest.mark.parametrize(
    ("alias", "name", "text", "value"),
    [
        ("rocketmq.nameserver", "nameServer", "a:1", "a:1"),
        ("includeHeaders", "includeProperties", "true", True),
        ("kafka.group.id", "group", "g", "g"),
        ("fetchOffset.numRetries", "numRetries", "5", 5),
        ("pullTimeoutMs", "pollTimeoutMs", "3000", 3000),
        ("filter.sql", "sqlExpression", "a > 1", "a > 1"),
    ],
)
def test_old_and_foreign_names_are_aliases(alias: str, name: str, text: str, value: object) -> None:
    assert read_options({alias: text}, Use.BATCH)[name] == value


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'maxOffsetPerTrigger'; did you mean maxOffsetsPerTrigger\?"):
        read_options({"maxOffsetPerTrigger": "1"}, Use.STREAM)


def test_an_option_given_under_two_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="group is given twice"):
        read_options({"group": "a", "consumer.group": "b"}, Use.BATCH)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("minPartitions", "0", "an integer from 1"),
        ("minPartitions", "many", "an integer"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("decode", "json", "raw or utf8"),
        ("startingOffsetsByTimestampStrategy", "guess", "error or latest"),
    ],
)
def test_a_bad_value_is_refused_by_name_with_what_was_wanted(name: str, text: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name}: got '{text}', wanted {wanted}"):
        read_options({name: text}, Use.BATCH)


@pytest.mark.parametrize(
    ("text", "ms"), [("900", 900), ("15m", 900_000), ("2 h", 7_200_000), ("250 ms", 250), ("1d", 86_400_000)]
)
def test_times_are_read_with_their_units(text: str, ms: int) -> None:
    assert read_options({"maxTriggerDelay": text}, Use.STREAM)["maxTriggerDelay"] == ms


def test_an_option_that_would_be_ignored_is_refused() -> None:
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger means nothing in a batch read"):
        source_settings({**GIVEN, "maxOffsetsPerTrigger": "5"}, Use.BATCH)


def test_sparks_own_options_are_left_alone() -> None:
    settings = sink_settings({"nameServer": "a:1", "checkpointLocation": "/c", "path": "/p"})
    assert settings.calling.name_servers == ("a:1",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "T"}, "nameServer is needed"),
        ({"nameServer": "a:1"}, "one of the options subscribe, subscribePattern, assign is needed"),
        ({**GIVEN, "assign": "{}"}, "subscribe and assign exclude each other"),
        ({**GIVEN, "topic": "U"}, "give one of them"),
        ({**GIVEN, "subExpression": "A", "sqlExpression": "a > 1"}, "exclude each other"),
        ({"nameServer": "host:port", "subscribe": "T"}, "option nameServer: .*wanted host:port"),
    ],
)
def test_options_that_contradict_or_are_missing_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source_settings(options, Use.BATCH)


def test_the_topic_of_the_old_connector_subscribes() -> None:
    assert source_settings({"nameServer": "a:1", "topic": "T"}, Use.BATCH).subscribe == "T"


def test_a_mirror_needs_its_group() -> None:
    with pytest.raises(ConfigError, match="commitOffsets needs the option group"):
        source_settings({**GIVEN, "commitOffsets": "true"}, Use.STREAM)


def test_the_guide_lists_every_option_as_the_table_has_it() -> None:
    assert option_table() in GUIDE.read_text()
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)


def test_keys_come_in_pairs_and_are_not_shown() -> None:
    keys = {"accessKey": "job", "secretKey": "s3cret/with:signs"}
    given = {"nameServer": "127.0.0.1", "subscribe": "T"}
    with pytest.raises(ConfigError, match="accessKey and secretKey"):
        source_settings({**given, "accessKey": "a"}, Use.BATCH)
    settings = source_settings({**given, **keys}, Use.BATCH)
    assert settings.calling.secret_key == keys["secretKey"]
    assert keys["secretKey"] not in repr(settings)
