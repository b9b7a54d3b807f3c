"""The option ``where``: what a text of conditions selects, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mqcore.errors import ConfigError
from mqcore.spark.conditions import narrowed
from mqcore.spark.options import Use
from mqcore.spark.settings import SourceSettings, source_settings
from mqcore.store.message_columns import UNBOUNDED_MAX, Selection

NOON_MS = 1_763_726_400_000
NOON = "2025-11-21T12:00:00"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("queueId = 3", {"queue_ids": frozenset({3})}),
        ("QUEUEID IN (1, 2,3) and queueId in (3,4)", {"queue_ids": frozenset({3})}),
        ("queueId = 99999999999", {"queue_ids": frozenset()}),
        ("offset >= 10 AND offset < 20", {"offset_min": 10, "offset_max": 20}),
        ("queueOffset > 10 AND offset <= 20", {"offset_min": 11, "offset_max": 21}),
        ("offset BETWEEN 5 AND 7 AND queueId == 0", {"offset_min": 5, "offset_max": 8, "queue_ids": frozenset({0})}),
        ("offset = -1", {"offset_min": -1, "offset_max": 0}),
        ("offset <= 99999999999999999999", {"offset_max": UNBOUNDED_MAX}),
        ("tags = 'it''s' AND tags IN ('it''s', 'b')", {"tags": frozenset({"it's"})}),
        ("topic IN ('A','B')", {"topics": frozenset({"A", "B"})}),
        (f"storeTimestamp >= '{NOON}'", {"store_timestamp_min": NOON_MS}),
        (f"storeTimestamp > {NOON_MS}", {"store_timestamp_min": NOON_MS + 1}),
        (f"storeTimestamp < '{NOON}.0005Z'", {"store_timestamp_max": NOON_MS + 1}),
        (f"storeTimestamp <= '{NOON}.0005+00:00'", {"store_timestamp_max": NOON_MS + 1}),
        (f"storeTimestamp = '{NOON}.0005'", {"store_timestamp_min": NOON_MS + 1, "store_timestamp_max": NOON_MS + 1}),
    ],
)
def test_conditions_narrow_a_selection(text: str, wanted: dict[str, Any]) -> None:
    assert narrowed(Selection(), text) == Selection(**wanted)


def test_conditions_are_added_to_what_is_chosen_already() -> None:
    before = Selection(tags=frozenset({"a", "b"}), offset_min=50)
    assert narrowed(before, "tags IN ('b','c') AND offset >= 10") == Selection(tags=frozenset({"b"}), offset_min=50)
    assert narrowed(before, None) is before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got the end, wanted more"),
        ("body = 'x'", "got body, wanted one of topic, queueId"),
        ("queueId", "got the end"),
        ("queueId ! 1", "got ! 1, wanted a condition"),
        ("queueId = 'a'", "wanted a number to compare queueId with"),
        ("tags = a", "got a, wanted a text in quotes"),
        ("tags = 'a", "got 'a, wanted a condition"),
        ("tags > 'a'", "> means nothing for tags"),
        ("queueId < 1", "< means nothing for queueId"),
        ("offset IN (1, 2)", "IN means nothing for offset"),
        ("queueId IN (1, 2", "got the end"),
        ("queueId IN (1 2)", "got 2, wanted a comma"),
        ("queueId = 1 OR queueId = 2", "got OR, wanted AND"),
        ("queueId = 1 AND", "got the end"),
        ("storeTimestamp = 'noon'", "got noon, wanted ms since 1970 or"),
        ("offset LIKE 5", "got LIKE, wanted =,"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match="option where") as caught:
        narrowed(Selection(), text)
    assert message in str(caught.value)


def settings(**options: str) -> SourceSettings:
    return source_settings({"nameServer": "127.0.0.1", "subscribe": "T", **options}, Use.BATCH)


def test_tags_are_filtered_at_the_broker_where_it_can_be_told_them() -> None:
    assert settings(where="tags IN ('b', 'a')").sub_expression == "a||b"
    assert settings(where="tags = 'a' AND tags = 'b'").sub_expression is None
    assert settings(where="tags = 'a b'").sub_expression is None
    assert settings(where="tags = '*'").sub_expression is None
    assert settings(where="tags = 'a'", sqlExpression="x = 1").sub_expression is None
    both = settings(where="tags = 'a'", subExpression="a || b")
    assert (both.sub_expression, both.selection.tags) == ("a || b", frozenset({"a"}))
