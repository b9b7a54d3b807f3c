"""Who a store is in its group, its epochs, and what was confirmed: all of the old or all of the new, or named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mqcore import files
from mqcore.errors import CorruptFileError
from mqcore.store.epochs import EpochEntry
from mqcore.store.failover_files import FailoverFiles, Identity
from mqcore.store.paths import StorePaths

IDENTITY = Identity("c", "b", 3, "5e1f", "77", "boot", seen_epoch=9, floor=1 << 40, cutting_to=4711)
EPOCHS = (EpochEntry(1, 0), EpochEntry(4, 1000), EpochEntry(5, 1000))


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    return StorePaths.at(tmp_path / "store")


def test_a_store_that_was_never_in_a_group_has_no_identity(paths: StorePaths) -> None:
    found = FailoverFiles(paths)
    assert (found.read_identity(), found.read_epochs(), found.read_confirmed()) == (None, (), None)


@pytest.mark.parametrize("identity", [IDENTITY, Identity("c", "b", None, "u"), replace(IDENTITY, cutting_to=None)])
def test_what_was_written_is_read(paths: StorePaths, identity: Identity) -> None:
    FailoverFiles(paths).write_identity(identity)
    FailoverFiles(paths).write_epochs(EPOCHS)
    FailoverFiles(paths).write_confirmed(1 << 41)
    found = FailoverFiles(paths)
    assert (found.read_identity(), found.read_epochs(), found.read_confirmed()) == (identity, EPOCHS, 1 << 41)


@pytest.mark.parametrize("cut", range(0, len(json.dumps({"cluster": "c"})) - 1, 3))
def test_an_identity_that_is_cut_short_stops_the_start_and_is_named(paths: StorePaths, cut: int) -> None:
    FailoverFiles(paths).write_identity(IDENTITY)
    paths.ha_identity.write_bytes(paths.ha_identity.read_bytes()[:cut])
    with pytest.raises(CorruptFileError, match=r"damaged.*mqcore/ha_identity"):
        FailoverFiles(paths).read_identity()


@pytest.mark.parametrize(
    ("field", "value"),
    [("member", "3"), ("member", True), ("is_trusted", 1), ("floor", None), ("cutting_to", 0.5), ("uuid", None)],
)
def test_a_field_of_another_kind_is_named(paths: StorePaths, field: str, value: object) -> None:
    FailoverFiles(paths).write_identity(IDENTITY)
    paths.ha_identity.write_text(json.dumps(json.loads(paths.ha_identity.read_bytes()) | {field: value}))
    with pytest.raises(CorruptFileError, match=rf"{field} is .*mqcore/ha_identity"):
        FailoverFiles(paths).read_identity()


def test_a_field_that_is_missing_is_named(paths: StorePaths) -> None:
    FailoverFiles(paths).write_identity(IDENTITY)
    found = json.loads(paths.ha_identity.read_bytes())
    del found["cutting_to"]
    paths.ha_identity.write_text(json.dumps(found))
    with pytest.raises(CorruptFileError, match="cutting_to"):
        FailoverFiles(paths).read_identity()


@pytest.mark.parametrize("text", ["[", "[]x", "[[1]]", '[["a", 0]]', "7", "[[2, 0], [2, 5]]", "[[1, 5], [2, 4]]"])
def test_epochs_that_cannot_be_stop_the_start_and_are_named(paths: StorePaths, text: str) -> None:
    FailoverFiles(paths).write_epochs(EPOCHS)
    paths.epochs.write_text(text)
    with pytest.raises(CorruptFileError, match="mqcore/epochs"):
        FailoverFiles(paths).read_epochs()


@pytest.mark.parametrize("text", ["", "12x", "-5"])
def test_a_damaged_number_confirms_nothing(paths: StorePaths, text: str) -> None:
    FailoverFiles(paths).write_confirmed(5)
    paths.confirmed.write_text(text)
    assert FailoverFiles(paths).read_confirmed() == 0


def dying_after(calls: int, write: Callable[[], None]) -> bool:
    """Run *write* in a process that ends before its call number *calls* to the file system; whether it came so far."""
    child = os.fork()
    if child == 0:
        left = [calls]

        def dying(name: str, arguments: tuple[object, ...]) -> None:
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1

        door = (files.os, ("fsync", "open", "pwrite")), (Path, ("open", "replace", "mkdir", "unlink"))
        for owner, names in door:
            for name in names:
                setattr(owner, name, _before(getattr(owner, name), dying))
        write()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def _before(call: Callable[..., object], told: Callable[[str, tuple[object, ...]], None]) -> Callable[..., object]:
    def called(*arguments: object, **named: object) -> object:
        told(call.__name__, arguments)
        return call(*arguments, **named)

    return called


def test_a_crash_between_any_two_steps_leaves_the_old_or_the_new(paths: StorePaths) -> None:
    found = FailoverFiles(paths)
    old, new = (IDENTITY, EPOCHS[:1], 1), (replace(IDENTITY, seen_epoch=10), EPOCHS, 2)

    def write(what: tuple[Identity, tuple[EpochEntry, ...], int]) -> None:
        found.write_identity(what[0])
        found.write_epochs(what[1])
        found.write_confirmed(what[2])

    write(old)
    calls, seen = 0, set()
    while dying_after(calls, lambda: write(new)):
        state = (found.read_identity() == new[0], found.read_epochs() == new[1], found.read_confirmed() == new[2])
        assert state in ((False,) * 3, (True, False, False), (True, True, False), (True,) * 3)
        assert state[0] or found.read_identity() == old[0]
        assert state[1] or found.read_epochs() == old[1]
        assert state[2] or found.read_confirmed() == old[2]
        seen.add(state)
        write(old)
        calls += 1
    assert len(seen) == 4, "it was ended before, between and behind the three"
