"""A send that is signed on the short way is the one that the hook of the long way signs."""

from __future__ import annotations

import random

import pytest

from mqcore.errors import FrameError, HeaderError
from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.protocol.codec import SendHead
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.signed_sends import SignedSendHead
from mqcore.transport.signing import Signer

VALUES = ("grüppe", 'to"pic\\', "TBW102", 4, 3, "broker-ä")
TEXTS = ("", "x", "é", "\U0001f40d", '"\\\t', "\ud800", "a" * 3000)


@pytest.mark.parametrize("token", [None, "token/with+signs"])
@pytest.mark.parametrize("number", range(20))
def test_the_frame_is_that_of_the_long_way_signed_by_the_hook(token: str | None, number: int) -> None:
    chance = random.Random(f"{token} {number}")
    signer = Signer('key "1"', "secret ü", token)
    properties = {f"p{i}": chance.choice(TEXTS) for i in range(chance.randrange(5))}
    sent = (
        chance.randrange(2**31),
        chance.choice((0, 1, 8)),
        chance.randrange(2**41),
        chance.choice((-(2**31), 0, 7)),
        properties,
        chance.randbytes(chance.choice((0, 1, 1024, 70_000))),
    )
    expected = RemotingCommand.decode(SendHead(*VALUES).encode(*sent)[4:])
    signer("address", expected)
    frame = SignedSendHead(signer.identity, signer.secret, *VALUES).encode(*sent)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert RemotingCommand.decode(frame[4:]) == expected


def test_what_cannot_travel_is_refused() -> None:
    head = SignedSendHead({"AccessKey": "k"}, b"s", *VALUES)
    with pytest.raises(HeaderError, match="a separator inside 'a'"):
        head.encode(1, 0, 0, 0, {"a": "\x02"}, b"")
    room = FRAME_LENGTH_MAX - len(head.encode(1, 0, 0, 0, {}, b"")) + 4
    assert len(head.encode(1, 0, 0, 0, {}, bytes(room))) == FRAME_LENGTH_MAX + 4
    with pytest.raises(FrameError, match="frame too large"):
        head.encode(1, 0, 0, 0, {}, bytes(room + 1))
