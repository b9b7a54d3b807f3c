"""Who may go on as a slave of whom, who is cut before, and whose store is never touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqcore.broker.failover import identity as identity_module
from mqcore.broker.failover.identity import IdentityKeeper
from mqcore.broker.failover.negotiation import Clash, CutTo, GoOn, Meeting, StartOver, meet
from mqcore.errors import GroupIdentityError
from mqcore.protocol.ha_bodies import EpochCache, EpochStart
from mqcore.store.epochs import EpochEntry
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.paths import StorePaths

MASTER = EpochCache(epoch_list=[EpochStart(1, 0), EpochStart(3, 500)], max_offset=900, min_offset=0, term=3)
ONE = EpochEntry(1, 0)


@pytest.mark.parametrize(
    ("mine", "first", "end", "wanted"),
    [
        pytest.param((), 0, 0, GoOn(0), id="an empty log"),
        pytest.param((ONE,), 0, 300, GoOn(0), id="the start of the master's"),
        pytest.param((ONE, EpochEntry(3, 500)), 0, 900, GoOn(0), id="the same log"),
        pytest.param((ONE,), 0, 700, CutTo(500), id="more of an epoch than the next one knows"),
        pytest.param((ONE, EpochEntry(2, 400)), 0, 450, CutTo(400), id="an epoch that the group has not"),
        pytest.param((ONE, EpochEntry(2, 400)), 0, 400, GoOn(0), id="an epoch without a record"),
        pytest.param((ONE, EpochEntry(3, 500)), 0, 950, CutTo(900), id="more than the master has"),
    ],
)
def test_a_log_becomes_the_start_of_the_masters(
    mine: tuple[EpochEntry, ...], first: int, end: int, wanted: Meeting
) -> None:
    for is_in_sync in (False, True):
        assert meet(mine, first, end, MASTER, is_in_sync=is_in_sync) == wanted


@pytest.mark.parametrize(
    ("mine", "first", "end", "masters_first", "words"),
    [
        pytest.param((EpochEntry(2, 0),), 0, 300, 0, "no epoch in common", id="another history"),
        pytest.param((ONE,), 0, 300, 400, "first file begins at 400", id="the master has dropped what comes next"),
        pytest.param((ONE, EpochEntry(2, 200)), 250, 300, 0, "its own first file begins at 250", id="all is cut"),
    ],
)
def test_what_has_no_place_to_go_on_is_emptied_unless_the_group_counts_on_it(
    mine: tuple[EpochEntry, ...], first: int, end: int, masters_first: int, words: str
) -> None:
    master = replace(MASTER, min_offset=masters_first)
    for is_in_sync, kind in ((False, StartOver), (True, Clash)):
        found = meet(mine, first, end, master, is_in_sync=is_in_sync)
        assert isinstance(found, kind)
        assert words in found.why


def test_messages_from_before_the_group_are_never_removed() -> None:
    found = meet((), 0, 100, MASTER, is_in_sync=False)
    assert isinstance(found, Clash)
    assert "before it was in this group" in found.why


def test_an_empty_log_begins_where_the_masters_does() -> None:
    assert meet((), 0, 0, replace(MASTER, min_offset=400), is_in_sync=False) == GoOn(400)


# Who has lost what it acknowledged, as far as a start can tell.


def keeper_of(root: Path) -> IdentityKeeper:
    return IdentityKeeper(FailoverFiles(StorePaths.at(root)), "cluster", "name")


@pytest.mark.parametrize("has_id", [False, True], ids=["new", "joined"])
def test_who_has_never_run_has_lost_nothing(tmp_path: Path, has_id: bool) -> None:
    keeper = keeper_of(tmp_path)
    if has_id:
        keeper.change(member=1)
    keeper.begin(mount="m", acks_flushed=False)
    assert keeper_of(tmp_path).now.is_trusted


def test_what_was_acknowledged_may_be_lost_with_the_kernel_that_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(identity_module, "BOOT_ID", boot)

    def starts(boot_id: str, mount: str = "m", *, acks_flushed: bool = False, stops: bool = False) -> bool:
        boot.write_text(boot_id)
        keeper = keeper_of(tmp_path / "store")
        keeper.begin(mount=mount, acks_flushed=acks_flushed)
        if stops:
            keeper.change(stopped_cleanly=True)
        return keeper.now.is_trusted

    assert starts("first")
    assert starts("first", acks_flushed=True)  # the process alone has died
    assert starts("second")  # what it acknowledged before was flushed
    assert starts("second", stops=True)
    assert starts("third")
    assert not starts("fourth", acks_flushed=True)  # now it would be, and was not
    # And nothing but a master makes it whole again.
    assert not starts("fourth", stops=True)
    assert not starts("fourth")


def test_what_was_acknowledged_may_be_lost_with_the_mount_that_had_it(tmp_path: Path) -> None:
    keeper_of(tmp_path).begin(mount="first", acks_flushed=False)
    again = keeper_of(tmp_path)
    again.begin(mount="first", acks_flushed=False)
    assert again.now.is_trusted
    anew = keeper_of(tmp_path)
    anew.begin(mount="second", acks_flushed=False)
    assert not anew.now.is_trusted


def test_what_was_confirmed_once_is_not_forgotten(tmp_path: Path) -> None:
    keeper = keeper_of(tmp_path)
    keeper.raise_floor()
    assert keeper.now.floor == 0
    for confirmed in (700, 300):
        keeper.files.write_confirmed(confirmed)
        keeper.raise_floor()
        assert keeper_of(tmp_path).now.floor == 700


def test_a_store_is_of_one_broker_name(tmp_path: Path) -> None:
    keeper_of(tmp_path).change(member=1)
    with pytest.raises(GroupIdentityError, match="is of name in cluster, and is started as other in cluster"):
        IdentityKeeper(FailoverFiles(StorePaths.at(tmp_path)), "cluster", "other")
