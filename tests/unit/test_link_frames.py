"""Messages of a link come whole and in their order, however the socket cuts them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqcore.workers.link_frames import LinkFrames, link_message

MESSAGES = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**63 - 1), st.binary(max_size=200)), max_size=20)


@given(MESSAGES, st.lists(st.integers(1, 97), min_size=1), st.integers(1, 64))
def test_messages_come_whole_and_in_order(
    messages: list[tuple[int, int, bytes]], cuts: list[int], buffer_size: int
) -> None:
    wire = b"".join(link_message(*message) for message in messages)
    frames = LinkFrames(buffer_size)
    came: list[tuple[int, int, bytes]] = []
    turn = 0
    while wire:
        room = frames.room()
        count = min(cuts[turn % len(cuts)], len(room), len(wire))
        room[:count] = wire[:count]
        wire = wire[count:]
        # An exported buffer cannot grow.
        room.release()
        came += frames.take(count)
        turn += 1
    assert came == messages


def test_a_part_of_a_message_is_kept_until_the_rest_has_come() -> None:
    frames = LinkFrames(64)
    wire = link_message(3, 7, b"payload")
    for at in range(len(wire)):
        frames.room()[:1] = wire[at : at + 1]
        assert list(frames.take(1)) == ([] if at < len(wire) - 1 else [(3, 7, b"payload")])
