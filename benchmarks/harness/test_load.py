"""The load loop against peers that no real broker can be made to play: torn, late, wrong, silent and gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks.harness.frames import FrameTemplate, body_of, pull_templates, send_templates, transaction_templates
from benchmarks.harness.histogram import Histogram
from benchmarks.harness.native import Engine
from benchmarks.harness.test_answers import record
from mqcore.codes import RequestCode, SerializeType
from mqcore.protocol.command import FrameSplitter, RemotingCommand

Answerer = Callable[[socket.socket, list[RemotingCommand]], None]
QUEUES = 3
FORMS = [pytest.param(form, id=form.name) for form in SerializeType]


def send_frames(form: SerializeType = SerializeType.JSON, batch_size: int = 1) -> list[FrameTemplate]:
    return send_templates(
        "T", queue_count=QUEUES, body=body_of(100), batch_size=batch_size, serialize_type=form, repetition=1
    )


def acknowledge(peer: socket.socket, requests: list[RemotingCommand]) -> None:
    peer.sendall(b"".join(request.reply().encode() for request in requests))


@contextmanager
def peer(answerer: Answerer) -> Iterator[tuple[socket.socket, list[RemotingCommand]]]:
    """A socket whose other end *answerer* serves, and the list of what it was asked."""
    ours, theirs = socket.socketpair()
    asked: list[RemotingCommand] = []

    def serve() -> None:
        splitter = FrameSplitter()
        with theirs:
            while data := theirs.recv(1 << 16):
                requests = [RemotingCommand.decode(payload) for payload in splitter.feed(data)]
                asked.extend(requests)
                try:
                    answerer(theirs, requests)
                except OSError:
                    return

    server = threading.Thread(target=serve)
    server.start()
    ours.setblocking(False)
    try:
        yield ours, asked
    finally:
        ours.shutdown(socket.SHUT_RDWR)
        ours.close()
        server.join()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [1, 7])
def test_every_request_is_made_and_counted_once(form: SerializeType, window: int) -> None:
    with peer(acknowledge) as (ours, asked):
        counts = Engine([ours.fileno()], window, send_frames(form), [], QUEUES).run(30, 1000)
    assert counts["all_messages"] == counts["answers"] == len(asked) == 1000
    assert counts["codes"] == {0: 1000}
    histogram = Histogram.of_counts(counts["buckets"], counts["slowest_ns"])
    assert histogram.total == 1000
    assert 0 < histogram.percentile_ns(50) <= histogram.percentile_ns(100) == counts["slowest_ns"]


@pytest.mark.parametrize("form", FORMS)
def test_requests_differ_in_opaque_and_unique_key_and_take_queues_in_turn(form: SerializeType) -> None:
    with peer(acknowledge) as (ours, asked):
        Engine([ours.fileno()], 4, send_frames(form), [], QUEUES).run(30, 600)
    fields = [request.ext_fields or {} for request in asked]
    assert len({request.opaque for request in asked}) == 600
    assert len({entry["i"] for entry in fields}) == 600
    assert [entry["e"] for entry in fields] == [str(index % QUEUES) for index in range(600)]
    assert {request.body for request in asked} == {body_of(100)}


def test_messages_of_a_batch_have_keys_of_their_own() -> None:
    with peer(acknowledge) as (ours, asked):
        counts = Engine([ours.fileno()], 1, send_frames(batch_size=5), [], QUEUES, 5).run(30, 20)
    keys = {key[:32] for request in asked for key in request.body.split(b"UNIQ_KEY\x01")[1:]}
    assert counts["all_messages"] == len(keys) == 100


def test_answers_torn_at_every_byte_and_out_of_order_are_all_taken() -> None:
    held: list[RemotingCommand] = []

    def tear(theirs: socket.socket, requests: list[RemotingCommand]) -> None:
        held.extend(requests)
        if len(held) == 8:
            for byte in b"".join(request.reply().encode() for request in reversed(held)):
                theirs.sendall(bytes([byte]))
            held.clear()

    with peer(tear) as (ours, _):
        counts = Engine([ours.fileno()], 8, send_frames(), [], QUEUES).run(30, 64)
    assert counts["codes"] == {0: 64}


def test_refusals_are_counted_by_code_and_are_no_messages() -> None:
    def refuse_odd_queues(theirs: socket.socket, requests: list[RemotingCommand]) -> None:
        for request in requests:
            theirs.sendall(request.reply(2 if (request.ext_fields or {})["e"] == "1" else 0).encode())

    with peer(refuse_odd_queues) as (ours, _):
        counts = Engine([ours.fileno()], 2, send_frames(), [], QUEUES).run(30, 300)
    assert counts["codes"] == {0: 200, 2: 100}
    assert counts["all_messages"] == 200


def test_an_engine_can_run_again_after_a_run_that_ended_by_time() -> None:
    with peer(acknowledge) as (ours, asked):
        engine = Engine([ours.fileno()], 4, send_frames(), [], QUEUES)
        total = sum(engine.run(0.05)["all_messages"] for _ in range(3))
    assert total == len(asked) > 0


def test_a_pull_follows_next_begin_offset_and_starts_again_at_the_end() -> None:
    end_offsets = [100, 5, 12]

    def serve(theirs: socket.socket, requests: list[RemotingCommand]) -> None:
        for request in requests:
            fields = request.ext_fields or {}
            queue_id, first = int(fields["queueId"]), int(fields["queueOffset"])
            after = min(first + int(fields["maxMsgNums"]), end_offsets[queue_id])
            body = b"".join(record(queue_id, offset) for offset in range(first, after))
            theirs.sendall(request.reply(ext_fields={"nextBeginOffset": str(after)}, body=body).encode())

    frames = pull_templates("T", queue_count=QUEUES, message_count_max=32, serialize_type=SerializeType.JSON)
    with peer(serve) as (ours, asked):
        counts = Engine([ours.fileno()], QUEUES, frames, end_offsets, QUEUES).run(30, 60)
    firsts: dict[str, list[str]] = {"0": [], "1": [], "2": []}
    for request in asked:
        fields = request.ext_fields or {}
        firsts[fields["queueId"]].append(fields["queueOffset"])
    assert counts["unsound"] == 0
    assert firsts["0"][:6] == ["0", "32", "64", "96", "0", "32"]
    assert set(firsts["1"]) == set(firsts["2"]) == {"0"}


def test_a_pull_that_brings_other_messages_is_unsound() -> None:
    def serve(theirs: socket.socket, requests: list[RemotingCommand]) -> None:
        for request in requests:
            theirs.sendall(request.reply(ext_fields={"nextBeginOffset": "2"}, body=record(0, 0)).encode())

    frames = pull_templates("T", queue_count=1, message_count_max=32, serialize_type=SerializeType.JSON)
    with peer(serve) as (ours, _):
        assert Engine([ours.fileno()], 1, frames, [10], 1).run(30, 5)["unsound"] == 5


def test_an_answer_to_no_request_ends_the_run() -> None:
    def answer_twice(theirs: socket.socket, requests: list[RemotingCommand]) -> None:
        acknowledge(theirs, requests * 2)

    with peer(answer_twice) as (ours, _), pytest.raises(ConnectionError, match="not an answer to an outstanding"):
        Engine([ours.fileno()], 1, send_frames(), [], QUEUES).run(30, 10)


def test_a_closed_connection_ends_the_run() -> None:
    def close(theirs: socket.socket, requests: list[RemotingCommand]) -> None:
        theirs.shutdown(socket.SHUT_RDWR)

    with peer(close) as (ours, _), pytest.raises(ConnectionError, match="closed a connection"):
        Engine([ours.fileno()], 1, send_frames(), [], QUEUES).run(30)


@pytest.mark.slow
def test_a_silent_broker_ends_the_run_after_ten_seconds() -> None:
    with peer(lambda theirs, requests: None) as (ours, _), pytest.raises(ConnectionError, match="no answer for 10 s"):
        Engine([ours.fileno()], 1, send_frames(), [], QUEUES).run(0.1)


@pytest.mark.parametrize(
    ("window", "end_offsets", "queue_count"),
    [(0, [], QUEUES), (1 << 20, [], QUEUES), (1, [], 2), (1, [], 0), (1, [1, 1, 0], QUEUES)],
)
def test_settings_that_make_no_sense_are_refused(window: int, end_offsets: list[int], queue_count: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ValueError, match=r"got|wanted|needs"):
        Engine([ours.fileno()], window, send_frames(), end_offsets, queue_count)


@pytest.mark.parametrize("window", [1, 5])
def test_each_half_message_that_was_answered_is_ended_at_its_place(window: int) -> None:
    halves: dict[int, tuple[int, str]] = {}

    def serve(peer: socket.socket, requests: list[RemotingCommand]) -> None:
        for request in requests:
            fields = request.ext_fields or {}
            if request.code == RequestCode.END_TRANSACTION:
                place = int(fields["commitLogOffset"])
                assert halves.pop(place)[0] == int(fields["tranStateTableOffset"])
                peer.sendall(request.reply().encode())
                continue
            place = 1_000 + 7 * len(halves_seen)
            halves_seen.append(fields["i"])
            halves[place] = (len(halves_seen), fields["i"])
            # Every fifth is refused, and never ended.
            if len(halves_seen) % 5 == 0:
                del halves[place]
                peer.sendall(request.reply(2, "busy").encode())
                continue
            reply = {"queueOffset": str(len(halves_seen)), "msgId": f"7F00000100002A9F{place:016X}", "queueId": "0"}
            peer.sendall(request.reply(ext_fields=reply).encode())

    halves_seen: list[str] = []
    templates = transaction_templates("T", queue_count=QUEUES, body=body_of(100), repetition=1)
    with peer(serve) as (ours, asked):
        engine = Engine([ours.fileno()], window, templates, [], QUEUES, ends_transactions=True)
        counts = engine.run(30, 500)
    assert halves == {}
    assert len(halves_seen) == 500
    assert all("TRAN_MSG\x01true" in text for text in halves_seen)
    assert len(set(halves_seen)) == 500
    assert counts["codes"] == {0: 400, 2: 100}
    assert (counts["all_messages"], counts["unsound"]) == (400, 0)
    assert len(asked) == 900
