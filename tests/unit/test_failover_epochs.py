"""How far two logs are one, and what a group's state looks like where it is stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.broker.failover.group_state import GroupState
from mqcore.errors import ProtocolError
from mqcore.store.epochs import EpochEntry, common_point, held_by

FIRST, SECOND, THIRD = EpochEntry(1, 0), EpochEntry(2, 40), EpochEntry(3, 70)


def test_a_log_without_epochs_has_all_to_get() -> None:
    assert common_point((), 0, (EpochEntry(4, 1 << 30),), 1 << 31) == 1 << 30


def test_two_logs_of_one_epoch_agree_up_to_the_shorter() -> None:
    assert common_point((FIRST,), 30, (FIRST,), 20) == 20
    assert common_point((FIRST,), 20, (FIRST,), 30) == 20


def test_what_another_master_wrote_behind_the_common_epoch_is_not_common() -> None:
    # One wrote on as the master of the second epoch at 40, the other as that of the third at 30.
    assert common_point((FIRST, SECOND), 60, (FIRST, EpochEntry(3, 30)), 90) == 30
    assert common_point((FIRST, EpochEntry(3, 30)), 90, (FIRST, SECOND), 60) == 30


def test_an_epoch_in_which_nothing_was_written_is_passed_over() -> None:
    assert common_point((FIRST, EpochEntry(2, 40)), 40, (FIRST, EpochEntry(3, 40)), 80) == 40
    assert common_point((FIRST, SECOND, EpochEntry(3, 40)), 40, (FIRST, SECOND, THIRD), 90) == 40


def test_logs_without_a_common_epoch_have_nothing_in_common() -> None:
    assert common_point((FIRST,), 30, (SECOND,), 90) is None
    # The same number, and another place: histories of two groups.
    assert common_point((EpochEntry(2, 10),), 30, (EpochEntry(2, 40),), 90) is None


def test_a_log_holds_the_epochs_that_begin_within_it_or_at_its_end() -> None:
    assert held_by((FIRST, SECOND, THIRD), 40) == (FIRST, SECOND)
    assert held_by((FIRST, SECOND, THIRD), 39) == (FIRST,)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=12), st.data())
def test_what_two_copies_of_one_history_share_is_the_shorter_one(
    epochs: list[tuple[int, bool]], data: st.DataObject
) -> None:
    start, entries = 0, []
    for epoch, (size, _) in enumerate(epochs, 1):
        entries.append(EpochEntry(epoch, start))
        start += size
    end = data.draw(st.integers(0, start))
    assert common_point(held_by(entries, end), end, entries, start) == end
    assert common_point(entries, start, held_by(entries, end), end) == end


def test_a_state_is_read_as_it_was_written() -> None:
    state = GroupState(7, 2, "a nonce", "127.0.0.1:10911", frozenset({0, 2}))
    assert GroupState.decode(state.encode()) == state


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"epoch":1,"master":0,"nonce":"n","address":"","isr":[1]}',
        b'{"epoch":"1","master":0,"nonce":"n","address":"","isr":[0]}',
        b'{"epoch":-1,"master":0,"nonce":"n","address":"","isr":[0]}',
        b'{"epoch":1,"master":0,"nonce":1,"address":"","isr":[0]}',
        b'{"epoch":1,"master":true,"nonce":"n","address":"","isr":[1]}',
    ],
)
def test_what_no_broker_has_written_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="group state: got"):
        GroupState.decode(data)
