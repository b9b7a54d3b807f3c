"""What a send worker refuses, delays and turns away when there is too much of it."""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_rig import Log, Mortals, RawRing, RawSegment, shared_segment
from test_fast_send_loop import (
    DEADLINE_S,
    FILE_SIZE,
    LINK,
    PULL_FIELDS,
    SEND_ROW,
    LoopRig,
    heart_beat,
    is_closed,
    replies,
    running,
    send_request,
)

from mqcore import layout
from mqcore.codes import RemotingFlag, RequestCode, ResponseCode
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import Message
from tests.waiting import wait_until

SEND, PULL = 0, 1
TOPIC, GROUP, CLIENT = 0, 1, 2
PATIENT_MS = 60_000
CLOCK_MONOTONIC_COARSE = 6
LOOPBACK = socket.inet_aton("127.0.0.1")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with shared_segment() as segment:
        yield Log(tmp_path, segment, FILE_SIZE)


@contextlib.contextmanager
def lock_kept(log: Log) -> Iterator[int]:
    """Another process has the put lock, as if the disk did not let it finish; its number."""
    children = Mortals()
    board = RawSegment(log.segment.fd).board
    children.begin(log.segment, "keep_put_lock")
    wait_until(lambda: board["locked_since"] != 0, describe="the child has the put lock")
    (pid,) = children.pids()
    try:
        yield pid
    finally:
        subprocess.run(["kill", "-9", str(pid)], check=False)
        children.finish()
        children.close()


def oneway(request: RemotingCommand) -> bytes:
    return RemotingCommand(
        request.code, request.opaque, flag=int(RemotingFlag.ONEWAY), ext_fields=request.ext_fields, body=request.body
    ).encode()


# Waiting for too long ---------------------------------------------------------------------------------------------


def test_a_send_that_has_waited_too_long_is_refused_and_the_next_is_not(log: Log) -> None:
    with running(log, send_wait_ms=200, lock_timeout_ms=PATIENT_MS) as loop, loop.connect() as client:
        with lock_kept(log) as pid:
            # Both come with one read; the second one waits until the first is stored.
            client.sendall(send_request(1).encode() + send_request(2).encode())
            # Nothing of this process runs while the loop's thread holds on to the lock: another one ends its owner.
            time.sleep(0.5)
            subprocess.run(["kill", "-9", str(pid)], check=True)
            first, second = replies(client, 2)
        assert (first.opaque, first.code) == (1, ResponseCode.SUCCESS)
        assert (second.opaque, second.code) == (2, ResponseCode.SYSTEM_BUSY)
        words = second.remark or ""
        assert words.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: ")
        assert 200 <= int(words.partition("period in queue: ")[2].partition("ms")[0]) < 60_000
        assert ", size of queue: 0, cause: disk, the commit log is written to slowly" in words
        client.sendall(send_request(3).encode())
        assert replies(client, 1)[0].code == ResponseCode.SUCCESS
        assert loop.word("timed_out") == 1


@pytest.mark.parametrize("limit_ms", [0, PATIENT_MS])
def test_a_send_may_wait_as_long_as_the_setting_says(log: Log, limit_ms: int) -> None:
    with running(log, send_wait_ms=limit_ms, lock_timeout_ms=PATIENT_MS) as loop, loop.connect() as client:
        with lock_kept(log) as pid:
            client.sendall(send_request(1).encode() + send_request(2).encode())
            time.sleep(0.3)
            subprocess.run(["kill", "-9", str(pid)], check=True)
            assert [answer.code for answer in replies(client, 2)] == [ResponseCode.SUCCESS] * 2
        assert loop.word("timed_out") == 0


def test_what_came_during_a_long_turn_has_waited_since_it_came(log: Log) -> None:
    """It is in its socket all that time: how long is asked of the kernel."""
    with (
        running(log, send_wait_ms=200, lock_timeout_ms=PATIENT_MS) as loop,
        loop.connect() as first,
        loop.connect() as early,
        loop.connect() as late,
    ):
        for client in (first, early, late):
            client.sendall(send_request(9).encode())
            replies(client, 1)
        with lock_kept(log) as pid:
            turns = loop.word("turns")
            first.sendall(send_request(1).encode())
            wait_until(lambda: loop.word("turns") > turns, describe="the turn that will take long has begun")
            time.sleep(0.05)
            early.sendall(send_request(2).encode())
            time.sleep(0.6)
            late.sendall(send_request(3).encode())
            subprocess.run(["kill", "-9", str(pid)], check=True)
            assert replies(first, 1)[0].code == ResponseCode.SUCCESS
            assert replies(early, 1)[0].code == ResponseCode.SYSTEM_BUSY
            assert replies(late, 1)[0].code == ResponseCode.SUCCESS


def test_a_oneway_send_that_waited_too_long_is_left_out_without_a_word(log: Log) -> None:
    with running(log, send_wait_ms=200, lock_timeout_ms=PATIENT_MS) as loop, loop.connect() as client:
        with lock_kept(log) as pid:
            client.sendall(send_request(1).encode() + oneway(send_request(2)))
            time.sleep(0.5)
            subprocess.run(["kill", "-9", str(pid)], check=True)
            assert replies(client, 1)[0].opaque == 1
        wait_until(lambda: loop.word("timed_out") == 1, describe="the other is refused")
        client.sendall(send_request(3).encode())
        assert replies(client, 1)[0].opaque == 3
        assert log.segment.get("put_times") == 2


def test_the_end_of_a_transaction_has_a_limit_of_its_own(log: Log) -> None:
    end = RemotingCommand(RequestCode.END_TRANSACTION, 2, ext_fields={"producerGroup": "g"})
    with running(log, transaction_wait_ms=200, lock_timeout_ms=PATIENT_MS) as loop, loop.connect() as client:
        with lock_kept(log) as pid:
            client.sendall(send_request(1).encode() + end.encode() + send_request(3).encode())
            time.sleep(0.5)
            subprocess.run(["kill", "-9", str(pid)], check=True)
            answers = {answer.opaque: answer for answer in replies(client, 3)}
        assert (answers[1].code, answers[3].code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
        assert (answers[2].remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]")
        assert loop.word("timed_out") == 1


def test_the_broker_process_is_told_since_when_a_request_has_been_here(log: Log) -> None:
    before = time.clock_gettime_ns(CLOCK_MONOTONIC_COARSE) // 1_000_000
    with running(log) as loop, loop.connect() as client:
        client.sendall(heart_beat(1).encode())
        loop.introduced(client)
        assert loop.told()[0] == LINK["REQUEST"]
        assert before <= loop.since_ms <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


# A busy page cache ------------------------------------------------------------------------------------------------


def test_an_append_that_takes_too_long_makes_sends_busy_at_once(log: Log) -> None:
    with running(log, lock_timeout_ms=300) as loop, loop.connect() as client:
        with lock_kept(log):
            time.sleep(0.5)
            began = time.monotonic()
            client.sendall(b"".join(send_request(number).encode() for number in range(50)))
            answers = replies(client, 50)
            assert time.monotonic() - began < 50 * 0.3, "each of them has waited"
        for answer in answers:
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert (answer.remark or "").startswith(
                "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
            )
            assert (answer.remark or "").endswith(", cause: disk, the commit log is written to slowly")
        client.sendall(send_request(99).encode())
        assert replies(client, 1)[0].code == ResponseCode.SUCCESS
        assert loop.word("page_cache_busy") == 50


def test_only_the_first_waits_for_who_keeps_the_lock_without_saying_since_when(log: Log) -> None:
    board = RawSegment(log.segment.fd).board
    with running(log, lock_timeout_ms=300) as loop, loop.connect() as client:
        with lock_kept(log):
            board["locked_since"] = 0
            began = time.monotonic()
            client.sendall(b"".join(send_request(number).encode() for number in range(50)))
            answers = replies(client, 50)
            assert time.monotonic() - began < 50 * 0.3, "each of them has waited"
        assert answers[0].code == ResponseCode.SYSTEM_ERROR
        assert (answers[0].remark or "").startswith("[PC_SYNCHRONIZED]")
        assert {answer.code for answer in answers[1:]} == {ResponseCode.SYSTEM_BUSY}
        client.sendall(send_request(99).encode())
        assert replies(client, 1)[0].code == ResponseCode.SUCCESS
        assert loop.word("page_cache_busy") == 49


def test_who_has_had_the_lock_for_as_long_as_no_append_takes_has_not_said_when_he_took_it(log: Log) -> None:
    with running(log, lock_timeout_ms=300) as loop, loop.connect() as client:
        RawSegment(log.segment.fd).board["locked_since"] = 1
        client.sendall(send_request(1).encode())
        assert replies(client, 1)[0].code == ResponseCode.SUCCESS
        assert loop.word("page_cache_busy") == 0


# Answers that wait ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "cause"),
    [
        ({"waits_for_flush": True, "sync_timeout_ms": PATIENT_MS}, "disk, the commit log is written to slowly"),
        (
            {"waits_for_slave": True, "slave_timeout_ms": PATIENT_MS, "slave_lag_max": 1 << 40},
            "replica, too many sends wait for a slave",
        ),
    ],
    ids=["flush", "slave"],
)
def test_only_so_many_answers_wait(log: Log, waits: dict[str, Any], cause: str) -> None:
    log.segment.set("slave_count", 1)
    with running(log, waiting_max=10, **waits) as loop, loop.connect() as client:
        client.sendall(b"".join(send_request(number).encode() for number in range(13)))
        for answer in replies(client, 3):
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert answer.remark == f"[OVERLOAD]system busy, start flow control for a while, cause: {cause}"
        assert log.segment.get("put_times") == 10
        for bound in ("flushed_offset", "replicated_offset"):
            log.segment.set(bound, log.segment.get("wrote_offset"))
        loop.wake()
        assert {answer.code for answer in replies(client, 10)} == {ResponseCode.SUCCESS}


# Pulls ------------------------------------------------------------------------------------------------------------


def answered(log: Log, loop: LoopRig, client: socket.socket, **reply: int) -> RemotingCommand:
    """What *client* gets when the pull worker answers its pull so."""
    requests = RawRing(log.segment.fd, "pull_request_rings", 0)
    client.sendall(RemotingCommand(RequestCode.PULL_MESSAGE, 5, ext_fields=PULL_FIELDS).encode())
    entries: list[tuple[int, bytes]] = []
    wait_until(
        lambda: entries.extend(entry for entry in [requests.pop()] if entry and entry[1]) or entries,
        DEADLINE_S,
        "a pull",
    )
    names = [field.name for field in layout.PULL_REQUEST.fields]
    asked = dict(zip(names, layout.PULL_REQUEST.struct.unpack_from(entries[0][1]), strict=True))
    values = dict.fromkeys([field.name for field in layout.PULL_REPLY.fields], 0) | {
        "connection_id": asked["connection_id"], "ticket": asked["ticket"], "code": ResponseCode.SYSTEM_BUSY,
    } | reply  # fmt: skip
    replies_ring = RawRing(log.segment.fd, "pull_reply_rings", 0)
    replies_ring.push(layout.constants("RingKind")["PULL_REPLY"], layout.PULL_REPLY.struct.pack(*values.values()))
    loop.wake()
    (answer,) = replies(client, 1)
    return answer


def test_a_pull_that_the_pull_worker_finds_too_old_is_refused_in_rocketmqs_words(log: Log) -> None:
    status = layout.constants("GetStatus")["WAITED_TOO_LONG"]
    with running(log) as loop, loop.connect() as client:
        answer = answered(log, loop, client, status=status, max_offset=6789)
        assert (answer.opaque, answer.code) == (5, ResponseCode.SYSTEM_BUSY)
        assert (answer.remark or "").startswith(
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 6789ms, size of queue: "
        )
        assert loop.word("timed_out") == 1


def test_a_pull_above_its_quota_is_refused_by_name(log: Log) -> None:
    status = layout.constants("GetStatus")["QUOTA_EXCEEDED"]
    with running(log) as loop, loop.connect() as client:
        answer = answered(log, loop, client, status=status)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark == (
        "[REJECTREQUEST]system busy, start flow control for a while, cause: quota, "
        "this pull would have to wait for long"
    )


# Quotas -----------------------------------------------------------------------------------------------------------


def test_sends_above_a_quota_are_late_and_in_order(log: Log) -> None:
    rules = [(SEND, TOPIC, b"*", 50, 0)]
    with running(log, quotas=rules, quota_delay_max_ms=PATIENT_MS) as loop, loop.connect() as client:
        began = time.monotonic()
        client.sendall(b"".join(send_request(number).encode() for number in range(75)))
        answers = replies(client, 75)
        took = time.monotonic() - began
    assert [answer.opaque for answer in answers] == list(range(75))
    offsets = [int((answer.ext_fields or {})["queueOffset"]) for answer in answers]
    assert offsets == sorted(offsets)
    # A second's worth passes at once; one more for each two hundredths of a second.
    assert took >= 0.4
    assert 20 <= loop.word("quota_delayed") <= 24
    assert loop.word("quota_refused") == 0


def test_a_send_that_would_wait_too_long_is_refused_by_name(log: Log) -> None:
    rules = [(SEND, TOPIC, b"other", 1, 0), (SEND, GROUP, b"producers", 10, 0)]
    with running(log, quotas=rules, quota_delay_max_ms=300) as loop, loop.connect() as client:
        client.sendall(b"".join(send_request(number).encode() for number in range(40)))
        answers = replies(client, 40)
    taken = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
    refused = [answer for answer in answers if answer.code == ResponseCode.SYSTEM_BUSY]
    assert len(taken) + len(refused) == 40
    assert 13 <= len(taken) <= 16
    for answer in refused:
        assert (answer.remark or "").startswith(
            "[REJECTREQUEST]system busy, start flow control for a while, cause: quota of the group, this send would"
        )
    assert log.segment.get("put_times") == len(taken), "what is refused is not stored"
    assert loop.word("quota_refused") == len(refused)


def test_bytes_have_quotas_and_clients_have(log: Log) -> None:
    rules = [(SEND, CLIENT, LOOPBACK, 0, 10_000)]
    with running(log, quotas=rules, quota_delay_max_ms=0) as loop, loop.connect() as client, loop.connect() as other:
        for number, (talker, code) in enumerate(
            [(client, ResponseCode.SUCCESS), (other, ResponseCode.SUCCESS), (client, ResponseCode.SYSTEM_BUSY)]
        ):
            talker.sendall(send_request(number, b"x" * 9000).encode())
            (answer,) = replies(talker, 1)
            assert answer.code == code
        assert "cause: quota of the client" in (answer.remark or "")


def test_each_message_of_a_batch_counts(log: Log) -> None:
    members = encode_batch([Message("T", b"body") for _ in range(30)])
    batch = send_request(1, members, m="true")
    with running(log, quotas=[(SEND, TOPIC, b"*", 10, 0)], quota_delay_max_ms=100) as loop, loop.connect() as client:
        client.sendall(batch.encode())
        assert replies(client, 1)[0].code == ResponseCode.SUCCESS
        client.sendall(send_request(2).encode())
        (answer,) = replies(client, 1)
    # Thirty in a second's ten: the next one would have to wait for two.
    waits_ms = int((answer.remark or "").rpartition("wait for ")[2].removesuffix("ms"))
    assert 1500 < waits_ms <= 2000


def test_a_oneway_send_waits_too_and_is_left_out_beyond_the_limit(log: Log) -> None:
    with running(log, quotas=[(SEND, TOPIC, b"*", 10, 0)], quota_delay_max_ms=300) as loop, loop.connect() as client:
        client.sendall(b"".join(oneway(send_request(number)) for number in range(40)))
        wait_until(lambda: loop.word("quota_refused") >= 20, describe="some are refused")
        refused = loop.word("quota_refused")
        wait_until(lambda: log.segment.get("put_times") == 40 - refused, describe="the others are stored")
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_who_is_gone_is_not_stored_for(log: Log) -> None:
    """As one whose answer nobody waits for: nothing was acknowledged."""
    with running(log, quotas=[(SEND, TOPIC, b"*", 10, 0)], quota_delay_max_ms=PATIENT_MS) as loop:
        with loop.connect() as client:
            client.sendall(b"".join(send_request(number).encode() for number in range(20)))
            wait_until(lambda: loop.word("quota_delayed") >= 9, describe="some wait")
        wait_until(lambda: loop.word("connections") == 0, describe="it is gone")
        stored = log.segment.get("put_times")
        with loop.connect() as other:
            other.sendall(heart_beat(1).encode())
            wait_until(lambda: loop.told()[0] == LINK["REQUEST"], describe="the loop goes on")
        time.sleep(0.3)
        assert log.segment.get("put_times") == stored <= 13


def test_what_the_broker_process_must_do_is_charged_here_and_said_to_be(log: Log) -> None:
    delayed = send_request(1, i="DELAY\x013\x02")
    with running(log, quotas=[(SEND, TOPIC, b"*", 1, 0)], quota_delay_max_ms=200) as loop, loop.connect() as client:
        client.sendall(heart_beat(9).encode() + delayed.encode())
        loop.introduced(client)
        assert loop.told()[2] == heart_beat(9).encode()[4:]
        assert loop.is_charged == 0
        assert loop.told()[2] == delayed.encode()[4:]
        assert loop.is_charged == 1
        client.sendall(b"".join(send_request(number).encode() for number in (2, 3)))
        assert [answer.code for answer in replies(client, 2)] == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY]


def test_other_quotas_hold_as_soon_as_they_are_published(log: Log) -> None:
    with running(log, quota_delay_max_ms=0) as loop, loop.connect() as client:
        opaques = itertools.count()

        def codes(count: int) -> list[int]:
            client.sendall(b"".join(send_request(next(opaques)).encode() for _ in range(count)))
            return [answer.code for answer in replies(client, count)]

        assert set(codes(50)) == {ResponseCode.SUCCESS}
        loop.change(quotas=[(SEND, TOPIC, b"*", 1, 0)])
        assert codes(5).count(ResponseCode.SYSTEM_BUSY) >= 2
        loop.change(quotas=[])
        assert set(codes(50)) == {ResponseCode.SUCCESS}


# Connections ------------------------------------------------------------------------------------------------------


def served(loop: LoopRig, client: socket.socket) -> bool:
    try:
        client.sendall(send_request(1).encode())
        return replies(client, 1)[0].code == ResponseCode.SUCCESS
    except (OSError, AssertionError):
        return False


@pytest.mark.parametrize("limit", ["connections_max", "connections_per_host_max"])
def test_one_connection_too_many_is_closed_and_the_others_are_served(log: Log, limit: str) -> None:
    with running(log, **{limit: 5}) as loop, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(loop.connect()) for _ in range(5)]
        assert all(served(loop, client) for client in clients)
        with loop.connect() as one_more:
            assert is_closed(one_more)
        assert all(served(loop, client) for client in clients)
        assert loop.word("connections_refused") == 1
        clients[0].close()
        wait_until(lambda: loop.word("connections") == 4, DEADLINE_S, "its place is free")
        with loop.connect() as another:
            assert served(loop, another)
        loop.change(**{limit: 0})
        more = [stack.enter_context(loop.connect()) for _ in range(20)]
        assert all(served(loop, client) for client in more)


def test_connections_of_all_workers_count(log: Log) -> None:
    with running(log, connections_max=5) as loop:
        log.segment.describe_worker(8, 1, 1)
        log.segment.set_worker_word(8, "connections", 5)
        with loop.connect() as client:
            assert is_closed(client)
        log.segment.set_worker_word(8, "connections", 4)
        with loop.connect() as client:
            assert served(loop, client)


def test_what_a_dead_worker_has_counted_by_address_is_gone_with_it(log: Log) -> None:
    with running(log) as loop, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(loop.connect()) for _ in range(9)]
        assert all(served(loop, client) for client in clients)
    log.segment.set_worker_word(SEND_ROW, "command", 0)
    with running(log, connections_per_host_max=1) as loop, loop.connect() as client:
        assert served(loop, client)
