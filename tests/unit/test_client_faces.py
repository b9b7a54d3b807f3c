"""The two faces are one: mqcore.aio and mqcore.client have the same members, with the same signatures and words."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from mqcore import aio, client
from mqcore.client.plain.calls import in_plain_words

PAIRS = [
    pytest.param(getattr(aio, name), getattr(client, name), id=name)
    for name in aio.__all__
    if getattr(aio, name) is not getattr(client, name)
]

INSIDE = {
    "Consumer": {"after_fork", "has_ended", "heartbeat_data", "rebalance_soon", "received", "session", "topics"}
    | {"watch_calls"},
    "Producer": {"after_fork", "choice", "has_ended", "join", "send_again", "send_soon_blocking", "sends", "session"}
    | {"short_way", "watch_sends"},
    "TransactionProducer": {"check_soon"},
    "PullConsumer": {"after_fork", "claim", "claim_now", "hand_out", "heartbeat_data", "note", "persist_offsets"}
    | {"has_ended", "rebalance_soon", "received", "session", "watch_calls"},
}
"""What the client itself asks of its members, whichever face they have: the plain one leads no program there."""

OWN_WORDS = {
    ("Client", "close"): "whose consumer's handler calls it does not wait, and is told how to",
    ("Client", "consumer"): "handlers are functions here, and run in threads",
    ("Client", "run"): "interrupted, where a task is cancelled",
    ("Client", "transaction_producer"): "the check is a function here, and runs in a thread",
    ("Producer", "add_hook"): "hooks run in a loop that the program does not see",
    ("Consumer", "add_hook"): "hooks run in a loop that the program does not see",
    ("PullConsumer", "add_hook"): "hooks run in a loop that the program does not see",
    ("Producer", "send_soon"): "the receipt is asked for by result, where it is awaited",
    ("TransactionProducer", "send_in_transaction"): "execute runs in the calling thread",
    ("TransactionProducer", "close"): "it is the one of its base, as checks are answered elsewhere",
}
"""Members that do the same and have to say it differently, and why."""


def members(face: type) -> dict[str, object]:
    """Return what of *face* is for programs, the bases' own included."""
    ours = [base for base in face.__mro__ if base.__module__.startswith("mqcore.")]
    inside = set[str]().union(*(INSIDE.get(base.__name__, set()) for base in ours))
    found = {name: member for base in reversed(ours) for name, member in vars(base).items()}
    return {name: member for name, member in found.items() if not name.startswith("_") and name not in inside}


def parameters(member: object) -> list[tuple[str, object, object]]:
    assert callable(member)
    found = inspect.signature(member).parameters.values()
    return [(one.name, one.kind, one.default) for one in found if one.name != "self"]


def own_words(face: type, name: str) -> Iterator[str]:
    return (base.__name__ for base in face.__mro__ if (base.__name__, name) in OWN_WORDS)


def test_both_faces_have_the_same_names() -> None:
    assert aio.__all__ == client.__all__
    assert len(PAIRS) >= 7


@pytest.mark.parametrize(("asynchronous", "plain"), PAIRS)
def test_both_faces_have_the_same_members(asynchronous: type, plain: type) -> None:
    assert sorted(members(asynchronous)) == sorted(members(plain))


@pytest.mark.parametrize(("asynchronous", "plain"), PAIRS)
def test_members_of_both_faces_take_the_same(asynchronous: type, plain: type) -> None:
    theirs = members(plain)
    for name, member in members(asynchronous).items():
        assert isinstance(member, property) is isinstance(theirs[name], property), name
        if callable(member):
            assert parameters(member) == parameters(theirs[name]), name


@pytest.mark.parametrize(("asynchronous", "plain"), PAIRS)
def test_members_of_both_faces_say_the_same(asynchronous: type, plain: type) -> None:
    theirs = members(plain)
    for name, member in members(asynchronous).items():
        said, plainly = inspect.getdoc(member), inspect.getdoc(theirs[name])
        if any(own_words(plain, name)):
            assert plainly
            assert plainly != in_plain_words(said), f"{name} needs no words of its own"
        else:
            assert plainly == in_plain_words(said), name
