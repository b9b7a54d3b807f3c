"""The file of a configuration table: what fastjson would write, whatever has changed since it was written last."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mqcore.broker.table_text import TableText
from mqcore.protocol.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

ODD = ("plain", 'quo"te', "back\\slash", "gruppe-ü", "%RETRY%g", "\x01table\x01", "")


def test_it_is_what_the_wrapper_would_write_after_any_changes(chance: random.Random) -> None:
    text, table = TableText[TopicConfig]("topicConfigTable"), dict[str, TopicConfig]()
    for counter in range(200):
        for _ in range(chance.randrange(4)):
            name = chance.choice([*ODD, *(f"topic-{number}" for number in range(30))])
            if chance.random() < 0.3:
                table.pop(name, None)
            elif chance.random() < 0.5 and name in table:
                table[name] = replace(table[name], perm=chance.randrange(8))
            else:
                attributes = {"message.type": "FIFO"} if chance.random() < 0.2 else None
                table[name] = TopicConfig(name, 4, chance.randrange(1, 9), 6, attributes=attributes)
        version = DataVersion(counter=counter, timestamp=1000 + counter)
        wanted = TopicConfigSerializeWrapper(dict(table), version).encode(pretty=True)
        assert text.render(dict(table), version) == wanted


@pytest.mark.parametrize("count", [0, 1, 2])
def test_groups_are_written_so_too(count: int) -> None:
    table = {name: SubscriptionGroupConfig(group_name=name) for name in ODD[:count]}
    version = DataVersion(counter=1, timestamp=2)
    wanted = SubscriptionGroupWrapper(table, version).encode(pretty=True)
    assert TableText[SubscriptionGroupConfig]("subscriptionGroupTable").render(table, version) == wanted


def test_only_what_has_changed_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    real = SubscriptionGroupConfig.to_json

    def noted(self: SubscriptionGroupConfig) -> dict[object, object]:
        rendered.append(self.group_name)
        return real(self)

    monkeypatch.setattr(SubscriptionGroupConfig, "to_json", noted)
    text = TableText[SubscriptionGroupConfig]("subscriptionGroupTable")
    table = {f"g{number}": SubscriptionGroupConfig(group_name=f"g{number}") for number in range(100)}
    text.render(table, DataVersion(counter=1, timestamp=2))
    assert len(rendered) == 100
    table = table | {"g7": replace(table["g7"], consume_enable=False)}
    text.render(table, DataVersion(counter=2, timestamp=2))
    assert rendered[100:] == ["g7"]


def test_what_is_gone_is_forgotten() -> None:
    text = TableText[SubscriptionGroupConfig]("subscriptionGroupTable")
    table = {f"g{number}": SubscriptionGroupConfig(group_name=f"g{number}") for number in range(100)}
    text.render(table, DataVersion(counter=1, timestamp=2))
    text.render({"g1": table["g1"]}, DataVersion(counter=2, timestamp=2))
    assert list(text._entries) == ["g1"]
