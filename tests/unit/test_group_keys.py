"""What a broker keeps of its group's keys."""

from __future__ import annotations

from mqcore.broker.failover.facts import Announcement
from mqcore.broker.failover.group_keys import ALIVE, Change, GroupView, encode

SAID = Announcement(last_epoch=5, end=700, trusted=True, address="10.0.0.2:10911")


def test_what_a_member_announced_last_is_known_when_it_is_gone() -> None:
    view = GroupView()
    view.take([Change(f"{ALIVE}2", encode(SAID), 10)])
    assert view.alive == view.announced == {2: SAID}
    view.take([Change(f"{ALIVE}2", None, 11)])
    assert (view.alive, view.announced) == ({}, {2: SAID})
