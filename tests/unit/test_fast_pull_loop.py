"""A pull worker's loop on its own: a send worker's rings on one side, the broker process's on the other."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fast_rig import RawRing, shared_segment
from store_builder import GEOMETRY as SMALL
from store_builder import StoreBuilder

from mqcore import layout
from mqcore._fast.pull.loop import PullLoop
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.rings import PullRequestRing
from mqcore.codes import PullSysFlag, ResponseCode
from mqcore.filter.sql import compile_sql
from mqcore.protocol.hashing import java_string_hash
from mqcore.store.codec import Dispatcher
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.record import Record
from mqcore.store.paths import file_name
from mqcore.store.queues.dispatch import Dispatcher as PlainDispatcher
from mqcore.workers.cold_pages import drop_pages
from tests.page_cache import keeps_pages, resident_share
from tests.waiting import wait_until

LINK = layout.constants("LinkKind")
STATUS = layout.constants("GetStatus")
RING = layout.constants("RingKind")
HA_ROLE = layout.constants("HaRole")
COMMAND = layout.constants("WorkerCommand")
STATE = layout.constants("WorkerState")
HEAD, QUESTION, BINDING = layout.LINK_HEAD, layout.RESOLVE, layout.BINDING
REQUEST, REPLY, RANGE = layout.PULL_REQUEST, layout.PULL_REPLY, layout.PULL_RANGE
SEND_ROW, PULL_ROW = 1, 2
TOPIC, GROUP = b"TopicA", b"billing"
Words = tuple[bytes, bytes, bytes | None, bytes | None]
WORDS: Words = (TOPIC, GROUP, b"*", None)
"""Of a pull: topic, group, subscription, expression type."""

SIZES = ("topic_size", "group_size", "subscription_size", "expression_type_size")
SERIAL = 1 << 16
"""What a ticket grows by with each use."""

DEADLINE_S = 60.0
DEADLINE_MS = 60_000
GEOMETRY = replace(SMALL, consume_queue_file_size=20 * 100)
MESSAGES = 30
FAR = 1 << 30
SUSPEND, COMMIT = int(PullSysFlag.SUSPEND), int(PullSysFlag.COMMIT_OFFSET)
FLAG = int(PullSysFlag.SUBSCRIPTION)


def names(item: layout.Layout) -> list[str]:
    return [field.name for field in item.fields]


class PullRig:
    """A running loop over a store of messages in queues 0 and 1 of TopicA, with the tags T0, T1 and T2 in turn."""

    def __init__(
        self,
        root: Path,
        segment: SharedSegment,
        messages: int = MESSAGES,
        geometry: StoreGeometry = GEOMETRY,
        dispatcher: Any = Dispatcher,
        **changes: Any,
    ) -> None:
        self.segment = segment
        self._geometry = geometry
        self._dispatcher = dispatcher
        self.store = StoreBuilder(root, geometry)
        self.store.append_many(messages)
        self.dispatch()
        for queue_id in (0, 1):
            segment.set_queue_word(segment.queue_row(TOPIC, queue_id, True), "max_offset", messages // 2)
        self._wakes = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2)]
        self._link, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._link.settimeout(DEADLINE_S)
        self._requests = PullRequestRing(segment, 0, 0)
        self._requested = RawRing(segment.fd, "pull_request_rings", 0)
        self._replies = RawRing(segment.fd, "pull_reply_rings", 0)
        self._arrivals = RawRing(segment.fd, "arrival_rings", 0)
        options = {
            "number": 0, "row": PULL_ROW, "wake": self._wakes[0], "link": self._theirs.fileno(),
            "senders": [(SEND_ROW, self._wakes[1])], "puller_count": 1,
            "consume_queue": str(self.store.paths.consume_queue),
            "consume_queue_ext": str(self.store.paths.consume_queue_ext), "ext_file_size": geometry.ext_file_size,
            "commit_log": str(self.store.paths.commit_log), "consume_queue_file_size": geometry.consume_queue_file_size,
            "commit_log_file_size": geometry.commit_log_file_size, "bytes_in_memory_max": 1 << 18,
            "count_in_memory_max": 32, "bytes_on_disk_max": 1 << 16, "count_on_disk_max": 8,
            "in_memory_bytes_max": 1 << 30, "binding_budget": 1 << 26, "mapped_queues_max": 1 << 14,
            "is_slave": False, "in_group": False, "corrects_offsets": False,
            "pull_wait_ms": 0, "quotas": (), "quota_delay_max_ms": 1000,
        }  # fmt: skip
        segment.describe_worker(PULL_ROW, layout.constants("WorkerKind")["PULL"], 0)
        self._loop = PullLoop(segment, {**options, **changes})
        self._options = options | changes
        self._version = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        wait_until(lambda: segment.worker_word(PULL_ROW, "state") == STATE["RUNNING"], describe="the loop runs")

    def _serve(self) -> None:
        while self._loop.run(self._version):
            self._loop.use(self._options)
            self._version = self.segment.get("settings_version")

    def change(self, **changes: int) -> None:
        """Publish other settings and wait until the loop goes by them."""
        self._options |= changes
        version = self.segment.add("settings_version", 1)
        os.eventfd_write(self._wakes[0], 1)
        wait_until(lambda: self._version == version, describe="the loop has asked for the settings")

    def dispatch(self) -> None:
        """Write the consume queues of all that is in the log, and say how far it goes."""
        dispatcher = self._dispatcher(self.store.paths, self._geometry)
        for start, data in self.store.runs():
            dispatcher.dispatch(data, start)
        dispatcher.close()
        self.segment.set("readable_offset", self.store.end)

    def ask(
        self,
        ticket: int,
        queue_offset: int = 0,
        *,
        queue_id: int = 0,
        sys_flag: int = 0,
        words: Words = WORDS,
        **changes: int,
    ) -> None:
        """Put a pull into the ring."""
        sizes = dict(zip(SIZES, (-1 if word is None else len(word) for word in words), strict=True))
        values = dict.fromkeys(names(REQUEST), 0) | {
            "connection_id": 77, "queue_offset": queue_offset, "suspend_timeout_ms": 15_000, "ticket": ticket,
            "opaque": ticket, "code": 11, "queue_id": queue_id, "sys_flag": sys_flag, "max_msg_nums": 32,
        } | sizes | changes  # fmt: skip
        strings = b"".join(word or b"" for word in words)
        assert self._requests.push(REQUEST.struct.pack(*values.values()) + strings, RING["PULL_REQUEST"])
        os.eventfd_write(self._wakes[0], 1)

    def asked(self) -> None:
        """Wait until the loop has taken all that was asked and ended: it takes arrivals only behind those."""
        wait_until(lambda: self._requested.is_empty, describe="what was asked is taken")

    def question(self, words: Words = WORDS) -> tuple[int, dict[str, int]]:
        """The next RESOLVE on the link: its id, and the pull that it is about."""
        kind, payload = self.told()
        assert kind == LINK["RESOLVE"]
        (resolve_id,) = QUESTION.struct.unpack_from(payload)
        values = REQUEST.struct.unpack_from(payload, QUESTION.size)
        assert payload.endswith(b"".join(word or b"" for word in words))
        return resolve_id, dict(zip(names(REQUEST), values, strict=True))

    def told(self) -> tuple[int, bytes]:
        """What the loop says next; that a pull took long, which it may do where the machine does, is passed over."""
        while True:
            size, kind, connection_id = HEAD.struct.unpack(self._receive(HEAD.size))
            payload = self._receive(size)
            if kind != LINK["LATE_PULL"]:
                assert connection_id == 77
                return kind, payload

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._link.recv(size - len(data))
        return data

    def bind(
        self,
        resolve_id: int,
        tags: tuple[str, ...] = (),
        sql: str = "",
        bits: tuple[int, ...] = (),
        **changes: int,
    ) -> None:
        """Answer a RESOLVE."""
        program = compile_sql(sql).program if sql else b""
        codes = sorted(java_string_hash(tag) for tag in tags)
        values = dict.fromkeys(names(BINDING), 0) | {
            "resolve_id": resolve_id, "epoch": self.segment.pull_epoch(TOPIC, GROUP), "suspend_limit_ms": -1,
            "broker_id": 0, "slow_broker_id": 1, "match_all": int(not tags), "tag_count": len(codes),
            "suspend_max_ms": DEADLINE_MS, "bitmap_from": -1, "filter_size": len(program),
            "bit_count": len(bits), "queue_count": 2,
        } | changes  # fmt: skip
        numbers = struct.pack(f"={len(codes) + len(bits)}i", *codes, *bits)
        payload = BINDING.struct.pack(*values.values()) + numbers + program
        self._link.sendall(HEAD.struct.pack(len(payload), LINK["BINDING"], 77) + payload)

    def pull(self, ticket: int, queue_offset: int = 0, *tags: str, **changes: int) -> dict[str, Any]:
        """Ask, answer the RESOLVE that follows, and return the reply."""
        self.ask(ticket, queue_offset, **changes)
        resolve_id, _ = self.question()
        self.bind(resolve_id, tags)
        return self.reply()

    def reply(self) -> dict[str, Any]:
        """The next reply, its ranges under "ranges"."""
        entries: list[tuple[int, bytes]] = []
        wait_until(
            lambda: entries.extend(entry for entry in [self._replies.pop()] if entry) or entries, DEADLINE_S, "a reply"
        )
        ((kind, payload),) = entries
        assert kind == RING["PULL_REPLY"]
        found: dict[str, Any] = dict(zip(names(REPLY), REPLY.struct.unpack_from(payload), strict=True))
        found["ranges"] = [
            RANGE.struct.unpack_from(payload, REPLY.size + index * RANGE.size) for index in range(found["range_count"])
        ]
        return found

    def arrive(self, queue_id: int, max_offset: int, tag: str) -> None:
        """A message has come: move the queue's end, and say so as the reput worker does."""
        row = self.segment.queue_row(TOPIC, queue_id)
        self.segment.set_queue_word(row, "max_offset", max_offset)
        self._arrivals.push(RING["ARRIVAL"], layout.ARRIVAL.struct.pack(row, 0, max_offset, java_string_hash(tag), 0))
        os.eventfd_write(self._wakes[0], 1)

    def processor_s(self) -> float:
        """The processor time that the loop has taken."""
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def end(self, *tickets: int) -> None:
        """Say that nobody waits for the pulls of *tickets*; without any, for what came before."""
        assert self._requests.push(struct.pack(f"={len(tickets)}i", *tickets), RING["PULLS_ENDED"])
        os.eventfd_write(self._wakes[0], 1)

    def waiters(self, queue_id: int = 0) -> int:
        return self.segment.queue_word(self.segment.queue_row(TOPIC, queue_id), "waiters")

    def close(self) -> None:
        self.segment.set_worker_word(PULL_ROW, "command", COMMAND["STOP"])
        os.eventfd_write(self._wakes[0], 1)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the loop did not stop"
        del self._loop
        self._link.close()
        self._theirs.close()
        for wake in self._wakes:
            os.close(wake)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[PullRig]:
    with shared_segment() as segment:
        made = PullRig(tmp_path, segment)
        try:
            yield made
        finally:
            made.close()


def bodies(rig: PullRig, reply: dict[str, Any]) -> list[bytes]:
    """The bodies of the records that a reply's ranges hold."""
    ranges = reply["ranges"]
    assert sum(size for _, size in ranges) == reply["total_size"]
    assert all(a + size < b for (a, size), (b, _) in pairwise(ranges)), "ranges were not joined"
    inside = [
        record.body
        for record in rig.store.records
        if any(start <= record.physical_offset < start + size for start, size in ranges)
    ]
    assert len(inside) == reply["message_count"]
    return inside


def expected(queue_id: int, first: int = 0, tag: str = "") -> list[bytes]:
    numbers = [number for number in range(MESSAGES) if number % 2 == queue_id and number // 2 >= first]
    return [b"body %d" % number for number in numbers if not tag or f"T{number % 3}" == tag]


def test_a_pull_is_asked_about_once_and_then_answered_from_memory(rig: PullRig) -> None:
    rig.ask(5, 3)
    resolve_id, asked = rig.question()
    assert (asked["ticket"], asked["queue_offset"]) == (5, 3)
    rig.bind(resolve_id)
    reply = rig.reply()
    assert (reply["ticket"], reply["connection_id"], reply["code"]) == (5, 77, ResponseCode.SUCCESS)
    assert (reply["status"], reply["next_begin_offset"], reply["max_offset"]) == (STATUS["FOUND"], 15, 15)
    assert bodies(rig, reply) == expected(0, 3)
    # No further question: the binding is remembered.
    rig.ask(6, 10)
    assert bodies(rig, rig.reply()) == expected(0, 10)


def test_a_binding_is_good_for_all_queues_of_its_topic(rig: PullRig) -> None:
    assert bodies(rig, rig.pull(1, 3, queue_id=1)) == expected(1, 3)
    rig.ask(2, 4, queue_id=0, sys_flag=COMMIT, commit_offset=4)
    assert bodies(rig, rig.reply()) == expected(0, 4)
    assert rig.segment.committed(rig.segment.offset_row(GROUP, TOPIC, 0)) == 4
    # Others are for the broker process, which refuses them by name.
    for ticket, queue_id in ((3, 2), (4, -1), (5, 1 << 30)):
        rig.ask(ticket, queue_id=queue_id)
        resolve_id, asked = rig.question()
        assert asked["queue_id"] == queue_id
        rig.bind(resolve_id, refused=1)
        assert (rig.reply()["refused"], rig.waiters()) == (1, 0)


def test_a_binding_remembers_many_queues(rig: PullRig) -> None:
    last = (1 << 16) + 1
    for ticket, queue_id in enumerate((1, 9, last - 2, last)):
        rig.ask(ticket, 15 if queue_id == 1 else 0, queue_id=queue_id)
        if ticket == 0:
            rig.bind(rig.question()[0], queue_count=last + 1)
        reply = rig.reply()
        assert (reply["ticket"], reply["code"]) == (ticket, ResponseCode.PULL_NOT_FOUND)
        assert rig.segment.offset_row(GROUP, TOPIC, queue_id) >= 0


def wait_for_taken(rig: PullRig, count: int) -> None:
    wait_until(lambda: rig.segment.worker_word(PULL_ROW, "units") == count, describe="the loop has taken the pulls")


def line_up(rig: PullRig) -> int:
    """Pulls 1, 2 and 3, of which the first is asked about; the number of that question."""
    rig.ask(1, 3)
    rig.ask(2, 4, queue_id=1, sys_flag=COMMIT, commit_offset=4)
    rig.ask(3, 5)
    wait_for_taken(rig, 3)
    resolve_id, asked = rig.question()
    assert asked["ticket"] == 1
    return resolve_id


def test_pulls_that_come_while_one_is_asked_about_wait_for_the_same_answer(rig: PullRig) -> None:
    rig.bind(line_up(rig))
    replies = [rig.reply() for _ in range(3)]
    assert [reply["ticket"] for reply in replies] == [1, 2, 3]
    assert [bodies(rig, reply) for reply in replies] == [expected(0, 3), expected(1, 4), expected(0, 5)]
    rig.segment.bump_group(GROUP)
    rig.ask(4)
    assert rig.question()[1]["ticket"] == 4, "the others were not asked about"


@pytest.mark.parametrize("answer", [{"refused": 1}, {"epoch": -1}], ids=["refused", "good for once"])
def test_an_answer_that_is_about_one_pull_alone_is_not_for_those_behind_it(
    rig: PullRig, answer: dict[str, int]
) -> None:
    rig.bind(line_up(rig), **answer)
    assert rig.reply()["ticket"] == 1
    questions = [rig.question() for _ in range(2)]
    assert [asked["ticket"] for _, asked in questions] == [2, 3]
    rig.bind(questions[0][0], **answer)
    rig.bind(questions[1][0])
    assert [rig.reply()["ticket"], rig.reply()["ticket"]] == [2, 3]


def test_who_leaves_while_it_waits_in_line_gets_no_answer_and_takes_no_place(rig: PullRig) -> None:
    resolve_id = line_up(rig)
    rig.end(2)
    # Its ticket's place has another pull by now.
    rig.ask(2 + SERIAL, 6)
    wait_for_taken(rig, 4)
    rig.bind(resolve_id, epoch=-1)
    assert rig.reply()["ticket"] == 1
    for ticket in (2, 3, 2 + SERIAL):
        resolve_id, asked = rig.question()
        assert asked["ticket"] == ticket
        rig.bind(resolve_id, epoch=-1)
    assert [rig.reply()["ticket"], rig.reply()["ticket"]] == [3, 2 + SERIAL]
    assert rig.segment.committed(rig.segment.offset_row(GROUP, TOPIC, 1)) == 4, "what it has said counts"


BUMPS: dict[str, Callable[[SharedSegment], object]] = {
    "all": lambda segment: segment.add("config_epoch", 1),
    "topic": lambda segment: segment.bump_topic(TOPIC),
    "group": lambda segment: segment.bump_group(GROUP),
}


@pytest.mark.parametrize("what", BUMPS)
def test_a_new_epoch_makes_the_worker_ask_again(rig: PullRig, what: str) -> None:
    rig.pull(1)
    BUMPS[what](rig.segment)
    rig.ask(2)
    resolve_id, _ = rig.question()
    rig.bind(resolve_id, ("T1",))
    assert bodies(rig, rig.reply()) == expected(0, 0, "T1")


def test_the_epochs_of_others_are_none_of_its_business(rig: PullRig) -> None:
    rig.pull(1)
    # A group's name is no topic's.
    for name in (b"TopicB", b"another group"):
        rig.segment.bump_topic(name)
        rig.segment.bump_group(name)
    rig.segment.bump_topic(GROUP)
    rig.segment.bump_group(TOPIC)
    rig.ask(2)
    assert bodies(rig, rig.reply()) == expected(0)


def test_a_change_while_the_checks_were_made_is_not_missed(rig: PullRig) -> None:
    rig.ask(1)
    resolve_id, _ = rig.question()
    before = rig.segment.pull_epoch(TOPIC, GROUP)
    rig.segment.bump_group(GROUP)
    rig.bind(resolve_id, epoch=before)
    # It was in order for this pull, and is not for the next one.
    assert bodies(rig, rig.reply()) == expected(0)
    rig.ask(2)
    rig.bind(rig.question()[0], epoch=-1)
    rig.reply()
    rig.ask(3)
    rig.question()


def test_what_was_found_in_order_is_forgotten_before_it_fills_the_memory(tmp_path: Path) -> None:
    def words(number: int) -> Words:
        return (TOPIC, GROUP, b"%05d" % number * 6000, b"TAG")

    with shared_segment() as segment:
        rig = PullRig(tmp_path, segment, binding_budget=40 * 6000 * 5)
        try:
            rig.ask(0, 15, words=words(0), sys_flag=SUSPEND | FLAG, suspend_timeout_ms=DEADLINE_MS)
            rig.bind(rig.question(words(0))[0])
            wait_until(lambda: rig.waiters() == 1, describe="a pull is held")
            for number in range(1, 200):
                rig.ask(number, words=words(number), sys_flag=FLAG)
                rig.bind(rig.question(words(number))[0])
                rig.reply()
            # The last is remembered, the first of them is asked about anew; and one that a pull points to stays.
            rig.ask(199, words=words(199), sys_flag=FLAG)
            assert rig.reply()["ticket"] == 199
            rig.ask(1, words=words(1), sys_flag=FLAG)
            rig.bind(rig.question(words(1))[0])
            rig.reply()
            rig.arrive(0, 16, "T0")
            assert rig.reply()["was_held"] == 1
        finally:
            rig.close()


@pytest.mark.parametrize(
    ("first", "second", "flag"),
    [
        ((b"T", b"GGG", b"ABCD", b"TAG"), (b"TGGG", b"ABC", b"DTAG", b""), FLAG),
        ((b"TG", b"ROUP", None, None), (b"TGR", b"OUP", None, None), 0),
        ((b"T", b"GROUP", b"AB", b"TAG"), (b"T", b"GROUP", b"ABT", b"AG"), FLAG),
        ((b"T", b"GROUP", b"AB", b"TAG"), (b"T", b"GROUPA", b"B", b"TAG"), FLAG),
        ((b"T", b"GROUP", b"AB", b""), (b"T", b"GROUP", b"AB", None), FLAG),
        ((b"T", b"GROUP", b"AB", b"TAG"), (b"T", b"GROUP", b"AB", b"TAG"), 0),
    ],
    ids=["every border moves", "topic and group", "subscription and type", "group and subscription", "absent", "flag"],
)
def test_pulls_that_only_look_alike_when_written_together_are_each_asked_about(
    rig: PullRig, first: Words, second: Words, flag: int
) -> None:
    rig.ask(1, words=first, sys_flag=FLAG)
    rig.bind(rig.question(first)[0])
    rig.reply()
    rig.ask(2, words=first, sys_flag=FLAG)
    rig.ask(3, words=second, sys_flag=flag)
    resolve_id, asked = rig.question(second)
    assert (asked["ticket"], rig.reply()["ticket"]) == (3, 2)
    rig.bind(resolve_id)
    assert rig.reply()["ticket"] == 3


def test_who_asks_is_part_of_what_is_remembered(rig: PullRig) -> None:
    rig.pull(1, principal=1)
    rig.ask(2, principal=1)
    rig.ask(3, principal=2)
    resolve_id, asked = rig.question()
    assert (asked["principal"], asked["ticket"], rig.reply()["ticket"]) == (2, 3, 2)
    rig.bind(resolve_id, refused=1)
    assert (rig.reply()["refused"], rig.pull(4, principal=1 << 40)["ticket"]) == (1, 4)


def test_only_the_wanted_tags_are_handed_out(rig: PullRig) -> None:
    reply = rig.pull(1, 0, "T2", queue_id=1)
    assert bodies(rig, reply) == expected(1, 0, "T2")
    assert reply["next_begin_offset"] == 15
    reply = rig.pull(2, 0, "unknown", queue_id=0, sub_version=1)
    assert (reply["code"], reply["status"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, STATUS["NO_MATCHED_MESSAGE"])
    assert (reply["ranges"], reply["next_begin_offset"]) == ([], 15)


@pytest.mark.parametrize(
    ("asked", "found"), [(900, 900), (layout.PULL_RANGES_MAX, layout.PULL_RANGES_MAX), (2000, layout.PULL_RANGES_MAX)]
)
def test_a_pull_brings_as_many_scattered_messages_as_one_write_can_take(tmp_path: Path, asked: int, found: int) -> None:
    geometry = replace(GEOMETRY, consume_queue_file_size=20 * 3000, commit_log_file_size=1 << 20)
    limits = {"count_in_memory_max": 5000, "bytes_in_memory_max": 1 << 30}
    with shared_segment() as segment:
        rig = PullRig(tmp_path, segment, 2 * (layout.PULL_RANGES_MAX + 100), geometry, **limits)
        try:
            reply = rig.pull(1, 50, max_msg_nums=asked)
            assert (reply["message_count"], reply["range_count"]) == (found, found)
            assert reply["next_begin_offset"] == 50 + found
            assert bodies(rig, reply) == [b"body %d" % (2 * number) for number in range(50, 50 + found)]
        finally:
            rig.close()


def test_one_write_can_take_the_ranges_of_a_pull_and_its_head() -> None:
    assert os.sysconf("SC_IOV_MAX") >= layout.PULL_RANGES_MAX + 1


def test_a_refused_pull_only_gives_its_ticket_back(rig: PullRig) -> None:
    rig.ask(9)
    resolve_id, _ = rig.question()
    rig.bind(resolve_id, refused=1)
    reply = rig.reply()
    assert (reply["ticket"], reply["refused"], reply["ranges"]) == (9, 1, [])


@pytest.mark.parametrize(
    ("offset", "bounds", "code", "status", "corrected"),
    [
        (15, (0, 15), ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 15),
        (16, (0, 15), ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 15),
        (4, (5, 15), ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 5),
        (0, (0, 0), ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0),
        (7, (0, 0), ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0),
        (250, (0, 290), ResponseCode.PULL_NOT_FOUND, "OFFSET_FOUND_NULL", 300),
    ],
)
def test_an_offset_outside_of_the_queue_is_corrected(
    rig: PullRig, offset: int, bounds: tuple[int, int], code: int, status: str, corrected: int
) -> None:
    row = rig.segment.queue_row(TOPIC, 0)
    rig.segment.set_queue_word(row, "min_offset", bounds[0])
    rig.segment.set_queue_word(row, "max_offset", bounds[1])
    reply = rig.pull(1, offset)
    assert (reply["code"], reply["status"], reply["next_begin_offset"]) == (code, STATUS[status], corrected)
    assert (reply["min_offset"], reply["max_offset"]) == bounds
    if code == ResponseCode.PULL_OFFSET_MOVED:
        kind, payload = rig.told()
        values = dict(zip(names(layout.OFFSET_MOVED), layout.OFFSET_MOVED.struct.unpack_from(payload), strict=True))
        assert kind == LINK["OFFSET_MOVED"]
        assert (values["requested"], values["corrected"]) == (offset, corrected)
        assert payload.endswith(TOPIC + GROUP)


@pytest.mark.parametrize("damage", ["a link in its place", "a wrong size"])
def test_nobody_is_sent_past_messages_whose_queue_file_cannot_be_read(
    rig: PullRig, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    (file,) = rig.store.paths.queue(TOPIC.decode(), 0).iterdir()
    aside = file.with_suffix(".aside")
    file.rename(aside)
    if damage == "a wrong size":
        file.write_bytes(aside.read_bytes()[:-1])
    else:
        file.symlink_to(aside)
    reply = rig.pull(1, 3)
    assert (reply["code"], reply["status"]) == (ResponseCode.SYSTEM_ERROR, STATUS["CONSUME_QUEUE_NOT_READABLE"])
    assert (reply["next_begin_offset"], reply["ranges"]) == (3, [])
    assert "not readable what=consume queue at=3" in caplog.text
    aside.replace(file)
    rig.ask(2, 3)
    assert bodies(rig, rig.reply()) == expected(0, 3)


EXT_GEOMETRY = replace(GEOMETRY, ext_enabled=True, ext_file_size=100)


@pytest.mark.parametrize("tag", ["T0", "T1", "T2"])
def test_tags_behind_ext_addresses_are_filtered(tmp_path: Path, tag: str) -> None:
    with shared_segment() as segment:
        rig = PullRig(tmp_path, segment, geometry=EXT_GEOMETRY)
        try:
            # Fifteen units, four to an ext file: the scan goes through them all.
            reply = rig.pull(1, 0, tag)
            assert reply["next_begin_offset"] == 15
            assert bodies(rig, reply) == expected(0, tag=tag)
        finally:
            rig.close()


def test_messages_whose_ext_file_is_gone_are_given_to_everybody(tmp_path: Path) -> None:
    with shared_segment() as segment:
        rig = PullRig(tmp_path, segment, geometry=EXT_GEOMETRY)
        try:
            for path in rig.store.paths.queue_ext("TopicA", 0).iterdir():
                if path.name != file_name(100):
                    path.unlink()
            kept = {b"body %d" % (2 * number) for number in range(4, 8)}
            wanted = [body for body in expected(0) if body not in kept or body in expected(0, tag="T1")]
            assert bodies(rig, rig.pull(1, 0, "T1")) == wanted
        finally:
            rig.close()


@pytest.mark.parametrize("geometry", [GEOMETRY, EXT_GEOMETRY], ids=["units", "ext units"])
def test_no_more_files_of_queues_are_mapped_than_allowed(tmp_path: Path, geometry: StoreGeometry) -> None:
    with shared_segment() as segment:
        rig = PullRig(tmp_path, segment, geometry=geometry, mapped_queues_max=4)
        try:
            for queue_id in range(2, 14):
                rig.store.append(queue_id=queue_id, body=b"one of %d" % queue_id, TAGS="T0")
            rig.dispatch()
            for queue_id in range(2, 14):
                segment.set_queue_word(segment.queue_row(TOPIC, queue_id, True), "max_offset", 1)
            for ticket in range(3 * 12):
                queue_id = 2 + ticket % 12
                rig.ask(ticket, 0, queue_id=queue_id)
                if ticket == 0:
                    rig.bind(rig.question()[0], ("T0",), queue_count=14)
                assert bodies(rig, rig.reply()) == [b"one of %d" % queue_id]
                maps = Path("/proc/self/maps").read_text().splitlines()
                assert sum(f"{tmp_path}/consumequeue" in line for line in maps) <= 4
        finally:
            rig.close()


def test_an_offset_is_committed_on_the_way(rig: PullRig) -> None:
    rig.pull(1, 3, sys_flag=COMMIT, commit_offset=3)
    row = rig.segment.offset_row(GROUP, TOPIC, 0)
    assert rig.segment.committed(row) == 3
    rig.ask(2, 5, commit_offset=5)
    rig.reply()
    assert rig.segment.committed(row) == 3, "without the flag nothing is committed"


@pytest.mark.parametrize(("in_memory", "wanted"), [(1 << 30, 2), (0, 3)])
def test_who_reads_far_behind_is_told_another_broker_than_who_keeps_up(
    rig: PullRig, in_memory: int, wanted: int
) -> None:
    rig.change(in_memory_bytes_max=in_memory)
    rig.ask(1, 0)
    resolve_id, _ = rig.question()
    rig.bind(resolve_id, broker_id=2, slow_broker_id=3)
    assert rig.reply()["suggest_broker_id"] == wanted


@pytest.mark.parametrize("offset", [4, 16])
def test_a_slave_sends_nobody_elsewhere_since_it_may_only_lag(rig: PullRig, offset: int) -> None:
    rig.change(is_slave=True)
    row = rig.segment.queue_row(TOPIC, 0)
    rig.segment.set_queue_word(row, "min_offset", 5)
    rig.segment.set_queue_word(row, "max_offset", 15)
    reply = rig.pull(1, offset)
    assert (reply["code"], reply["next_begin_offset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, offset)
    rig.change(corrects_offsets=True)
    rig.ask(2, offset)
    assert rig.reply()["code"] == ResponseCode.PULL_OFFSET_MOVED


@pytest.mark.parametrize("role", ["NONE", "SLAVE", "MASTER"])
def test_in_a_group_nobody_is_sent_back_before_what_a_master_before_has_given_out(rig: PullRig, role: str) -> None:
    rig.change(in_group=True, corrects_offsets=True)
    rig.segment.set("ha_role", HA_ROLE[role])
    rig.segment.set("epoch_start", 1000)
    rig.segment.set("confirmed_offset", 999)
    row = rig.segment.queue_row(TOPIC, 0)
    end = rig.segment.queue_word(row, "max_offset")
    reply = rig.pull(1, end + 3)
    assert (reply["code"], reply["next_begin_offset"]) == (ResponseCode.PULL_NOT_FOUND, end + 3)
    rig.ask(2, end + 3, sys_flag=SUSPEND, suspend_timeout_ms=60_000)
    wait_until(lambda: rig.segment.queue_word(row, "waiters") == 1, describe="it is held")
    rig.segment.set("confirmed_offset", 1000)
    rig.ask(3, end + 3)
    wanted = ResponseCode.PULL_OFFSET_MOVED if role == "MASTER" else ResponseCode.PULL_NOT_FOUND
    assert rig.reply()["code"] == wanted


BEGAN = 10
"""Where the epoch of ``doubt`` has begun in queue 0, which ends at 15."""


def doubt(rig: PullRig, began: int = BEGAN, role: str = "MASTER") -> None:
    """Let the broker lead, or follow, an epoch that lacks what was given out before."""
    rig.segment.set_queue_word(rig.segment.queue_row(TOPIC, 0), "doubt_offset", began)
    rig.segment.set("doubts_until", int(time.monotonic() * 1000) + DEADLINE_MS)
    rig.segment.set("ha_role", HA_ROLE[role])


def code_and_next(reply: dict[str, Any]) -> tuple[int, int]:
    return reply["code"], reply["next_begin_offset"]


@pytest.mark.parametrize("offset", [13, 15, 18])
def test_who_stands_behind_what_a_log_lacks_is_sent_back_to_where_its_epoch_began(rig: PullRig, offset: int) -> None:
    rig.change(in_group=True, corrects_offsets=True)
    rig.segment.set("epoch_start", 1000)
    doubt(rig)
    assert code_and_next(rig.pull(1, offset)) == (ResponseCode.PULL_OFFSET_MOVED, BEGAN), "nothing comes back there"
    rig.ask(2, BEGAN)
    assert code_and_next(rig.reply()) == (ResponseCode.SUCCESS, 15)
    rig.ask(3, 15)
    assert code_and_next(rig.reply()) == (ResponseCode.PULL_NOT_FOUND, 15), "there it was sent"


def test_a_pull_that_was_held_when_the_doubts_began_is_sent_back_at_once(rig: PullRig) -> None:
    rig.change(in_group=True, corrects_offsets=True)
    rig.ask(1, 15, sys_flag=SUSPEND, suspend_timeout_ms=DEADLINE_MS)
    rig.bind(rig.question()[0])
    rig.ask(2, 18, sys_flag=SUSPEND, suspend_timeout_ms=DEADLINE_MS)
    wait_until(lambda: rig.waiters() == 2, describe="both are held")
    doubt(rig, began=15)
    reply = rig.reply()
    assert (reply["ticket"], *code_and_next(reply)) == (2, ResponseCode.PULL_OFFSET_MOVED, 15)
    assert rig.waiters() == 1, "who stands at the end has missed nothing"


def test_a_slave_gives_nobody_what_its_master_would_have_him_read_first(rig: PullRig) -> None:
    rig.change(in_group=True, corrects_offsets=True)
    doubt(rig, role="SLAVE")
    assert code_and_next(rig.pull(1, BEGAN, max_msg_nums=2)) == (ResponseCode.SUCCESS, BEGAN + 2)
    rig.ask(2, 14, sys_flag=SUSPEND, suspend_timeout_ms=1)
    reply = rig.reply()
    assert (*code_and_next(reply), reply["was_held"]) == (ResponseCode.PULL_NOT_FOUND, 14, 1)
    rig.ask(3, 14, sys_flag=SUSPEND, suspend_timeout_ms=DEADLINE_MS)
    wait_until(lambda: rig.waiters() == 1, describe="it is held")
    rig.arrive(0, 15, "T0")
    rig.ask(4, BEGAN + 2, max_msg_nums=1)
    assert rig.reply()["ticket"] == 4, "what has come is not for who waits behind it"
    rig.segment.set("ha_role", HA_ROLE["MASTER"])
    rig.segment.add("doubts_until", 1)
    reply = rig.reply()
    assert (reply["ticket"], *code_and_next(reply)) == (3, ResponseCode.PULL_OFFSET_MOVED, BEGAN)


def test_of_several_readers_of_a_queue_none_is_sent_back_for_what_another_was_given(rig: PullRig) -> None:
    doubt(rig)
    rig.pull(1, BEGAN)
    rig.ask(2, 3, max_msg_nums=1)
    assert code_and_next(rig.reply()) == (ResponseCode.SUCCESS, 4)
    rig.ask(3, 15)
    assert code_and_next(rig.reply()) == (ResponseCode.PULL_NOT_FOUND, 15)


def test_who_waits_for_what_a_filter_wants_is_not_sent_back_behind_what_it_does_not(rig: PullRig) -> None:
    doubt(rig)
    rig.ask(1, 15, sys_flag=SUSPEND, suspend_timeout_ms=DEADLINE_MS)
    rig.bind(rig.question()[0], sql="TAGS = 'wanted'")
    assert code_and_next(rig.reply()) == (ResponseCode.PULL_OFFSET_MOVED, BEGAN)
    rig.ask(2, BEGAN, sys_flag=SUSPEND, suspend_timeout_ms=DEADLINE_MS)
    assert code_and_next(rig.reply()) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 15)
    rig.ask(3, 15, sys_flag=SUSPEND, suspend_timeout_ms=DEADLINE_MS)
    wait_until(lambda: rig.waiters() == 1, describe="it is held")
    for name in ("unwanted", "wanted"):
        append(rig, name)
    reply = rig.reply()
    assert (reply["ticket"], *code_and_next(reply)) == (3, ResponseCode.SUCCESS, 17)


def test_no_commit_is_believed_that_a_log_lacks_and_who_is_not_believed_goes_on_where_the_group_has_committed(
    rig: PullRig,
) -> None:
    doubt(rig)
    row = rig.segment.offset_row(GROUP, TOPIC, 0, True)
    assert rig.pull(1, 13, sys_flag=COMMIT, commit_offset=13)["next_begin_offset"] == BEGAN
    assert rig.segment.committed(row) == BEGAN
    assert rig.segment.believed_commit(row, 13) == BEGAN
    rig.segment.commit(row, 12)
    rig.ask(2, 14)
    assert code_and_next(rig.reply()) == (ResponseCode.PULL_OFFSET_MOVED, 12)
    rig.ask(3, 12)
    assert rig.reply()["next_begin_offset"] == 15
    assert rig.segment.believed_commit(row, 13) == 13, "it was given them"


def test_doubts_have_an_end(rig: PullRig) -> None:
    doubt(rig)
    rig.segment.set("doubts_until", 1)
    assert code_and_next(rig.pull(1, 13)) == (ResponseCode.SUCCESS, 15)
    rig.ask(2, 18)
    assert code_and_next(rig.reply()) == (ResponseCode.PULL_OFFSET_MOVED, 15)
    assert rig.segment.believed_commit(rig.segment.offset_row(GROUP, TOPIC, 0), 18) == 18


def test_in_a_group_the_board_says_whose_word_on_commits_counts(rig: PullRig) -> None:
    rig.change(in_group=True)
    rig.pull(1, 3, sys_flag=COMMIT, commit_offset=3)
    row = rig.segment.offset_row(GROUP, TOPIC, 0)
    assert rig.segment.committed(row) == -1
    rig.segment.set("ha_role", HA_ROLE["MASTER"])
    rig.ask(2, 3, sys_flag=COMMIT, commit_offset=3)
    rig.reply()
    assert rig.segment.committed(row) == 3


def test_of_a_slave_its_master_says_what_is_committed(rig: PullRig) -> None:
    rig.change(is_slave=True)
    rig.pull(1, 3, sys_flag=COMMIT, commit_offset=3)
    assert rig.segment.committed(rig.segment.offset_row(GROUP, TOPIC, 0)) == -1


def test_what_was_handed_out_is_counted(rig: PullRig) -> None:
    reply = rig.pull(1)
    row = rig.segment.offset_row(GROUP, TOPIC, 0)
    words = {name: rig.segment.offset_word(row, name) for name in ("get_nums", "get_bytes", "pulls", "behind_bytes")}
    last = [record for record in rig.store.records if record.queue_id == 0][-1]
    behind = rig.store.end - last.physical_offset
    assert words == {"get_nums": 15, "get_bytes": reply["total_size"], "pulls": 1, "behind_bytes": behind}
    assert (rig.segment.get("get_times"), rig.segment.get("get_found"), rig.segment.get("get_missed")) == (15, 1, 0)


def test_where_a_pull_goes_on_is_noted(rig: PullRig) -> None:
    row = rig.segment.offset_row(GROUP, TOPIC, 0, True)
    assert rig.segment.offset_word(row, "pull_offset") == 0
    assert rig.pull(1, 3, max_msg_nums=4)["next_begin_offset"] == 7
    assert rig.segment.offset_word(row, "pull_offset") == 7
    rig.ask(2, 20)
    assert rig.reply()["next_begin_offset"] == 15, "it had asked beyond the end"
    assert rig.segment.offset_word(row, "pull_offset") == 15


def test_what_a_filter_leaves_out_counts_as_pulled(rig: PullRig) -> None:
    assert rig.pull(1, 0, "no such tag")["next_begin_offset"] == 15
    assert rig.segment.offset_word(rig.segment.offset_row(GROUP, TOPIC, 0), "pull_offset") == 15


def test_limits_that_change_hold_from_the_next_pull_on(rig: PullRig) -> None:
    assert rig.pull(1)["message_count"] == 15
    rig.change(count_in_memory_max=3)
    rig.ask(2)
    assert rig.reply()["message_count"] == 3
    rig.change(count_in_memory_max=32, in_memory_bytes_max=0, count_on_disk_max=5)
    rig.ask(3)
    assert rig.reply()["message_count"] == 5, "all of it counts as being on disk"
    rig.change(count_on_disk_max=32, bytes_on_disk_max=1)
    rig.ask(4)
    assert rig.reply()["message_count"] == 1


def test_a_held_pull_outlives_a_change_of_settings(rig: PullRig) -> None:
    hold(rig, 1)
    rig.change(count_in_memory_max=1)
    assert rig.waiters() == 1
    rig.arrive(0, 16, "T0")
    wait_until(lambda: rig.waiters() == 0, describe="the pull is woken")


# Asking ----------------------------------------------------------------------------------------------------------

FEW, MANY = 2_500, 20_000
AT_A_TIME = 2_500
"""So many pulls fit into the ring."""

LINEAR = 3.0
"""How much more than its share the larger number may cost; a walk through all questions costs eight times its share."""


def answering_s(rig: PullRig, group: bytes, count: int) -> float:
    """Processor time of the loop to take the answers about *count* new bindings, in the order of the questions."""
    resolve_ids = []
    for first in range(0, count, AT_A_TIME):
        for number in range(first, first + AT_A_TIME):
            rig.ask(number, 15, words=(TOPIC, b"%s%d" % (group, number), b"*", None))
        resolve_ids += [QUESTION.struct.unpack_from(rig.told()[1])[0] for _ in range(AT_A_TIME)]
    before = rig.processor_s()
    for first in range(0, count, AT_A_TIME):
        for resolve_id in resolve_ids[first : first + AT_A_TIME]:
            rig.bind(resolve_id)
        replies = [rig.reply() for _ in range(AT_A_TIME)]
        assert [reply["ticket"] for reply in replies] == list(range(first, first + AT_A_TIME))
    return rig.processor_s() - before


def test_the_cost_of_an_answer_does_not_grow_with_the_questions_that_are_open(rig: PullRig) -> None:
    few, many = answering_s(rig, b"few", FEW), answering_s(rig, b"many", MANY)
    assert many < LINEAR * few * MANY / FEW, (few, many)


# Holding ---------------------------------------------------------------------------------------------------------


def hold(rig: PullRig, ticket: int, *tags: str, **changes: int) -> None:
    """Ask for what is not there yet, and wait until the pull is held."""
    before = rig.waiters()
    rig.ask(ticket, 15, sys_flag=SUSPEND, **changes)
    resolve_id, _ = rig.question()
    rig.bind(resolve_id, tags)
    wait_until(lambda: rig.waiters() == before + 1, describe="the pull is held")


def test_a_held_pull_is_answered_when_its_message_comes(rig: PullRig) -> None:
    hold(rig, 1, "T1")
    held_ns = time.monotonic_ns()
    assert rig.segment.waiting_pulls() == rig.segment.worker_word(PULL_ROW, "parked") == 1
    rig.store.append("TopicA", 0, b"of another tag", TAGS="T2")
    rig.store.append("TopicA", 0, b"the one", TAGS="T1")
    rig.dispatch()
    rig.arrive(0, 16, "T2")
    rig.arrive(0, 17, "T1")
    reply = rig.reply()
    assert (reply["ticket"], reply["was_held"], reply["next_begin_offset"]) == (1, 1, 17)
    assert held_ns < reply["woken"] < time.monotonic_ns(), "the hold ended when its message came"
    assert bodies(rig, reply) == [b"the one"]
    assert (rig.waiters(), rig.segment.waiting_pulls()) == (0, 0)


def test_a_held_pull_is_answered_when_its_time_is_over(rig: PullRig) -> None:
    reply = rig.pull(1, 15, sys_flag=SUSPEND, suspend_timeout_ms=10)
    assert (reply["code"], reply["was_held"]) == (ResponseCode.PULL_NOT_FOUND, 1)
    assert (rig.waiters(), rig.segment.get("get_missed")) == (0, 1)


def test_the_brokers_limit_rules_how_long_a_pull_is_held(rig: PullRig) -> None:
    rig.ask(1, 15, sys_flag=SUSPEND, suspend_timeout_ms=600_000)
    resolve_id, _ = rig.question()
    rig.bind(resolve_id, suspend_limit_ms=5)
    assert rig.reply()["code"] == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("asked_ms", [600_000, 10**12, 2**63 - 1])
def test_no_pull_is_held_for_longer_than_the_broker_allows(rig: PullRig, asked_ms: int) -> None:
    rig.ask(1, 15, sys_flag=SUSPEND, suspend_timeout_ms=asked_ms)
    resolve_id, _ = rig.question()
    rig.bind(resolve_id, suspend_max_ms=5)
    reply = rig.reply()
    assert (reply["code"], reply["was_held"]) == (ResponseCode.PULL_NOT_FOUND, 1)


def test_pulls_that_nobody_waits_for_are_let_go(rig: PullRig) -> None:
    hold(rig, SERIAL | 1)
    for ticket in (2, 3, 4):
        rig.ask(SERIAL | ticket, 15, sys_flag=SUSPEND)
    wait_until(lambda: rig.waiters() == 4, describe="all are held")
    # 7 was never asked for, and the second use of 4 was not either.
    rig.end(SERIAL | 2, SERIAL | 7, SERIAL | 1, 2 * SERIAL | 4)
    wait_until(lambda: rig.waiters() == 2, describe="two are let go of")
    assert rig.segment.waiting_pulls() == rig.segment.worker_word(PULL_ROW, "parked") == 2
    rig.arrive(0, 16, "T0")
    assert [rig.reply()["ticket"] for _ in range(2)] == [SERIAL | 3, SERIAL | 4]
    rig.end(SERIAL | 3)
    rig.ask(5)
    assert rig.reply()["ticket"] == 5


def test_a_pull_that_ends_while_it_is_asked_about_is_not_answered(rig: PullRig) -> None:
    rig.ask(1, 15, sys_flag=SUSPEND | COMMIT, commit_offset=4)
    resolve_id, _ = rig.question()
    rig.end(1)
    rig.bind(resolve_id)
    # What it has said of itself, and what was found out about it, is kept.
    rig.ask(2, 3)
    assert rig.reply()["ticket"] == 2
    assert (rig.waiters(), rig.segment.committed(rig.segment.offset_row(GROUP, TOPIC, 0))) == (0, 4)


def test_all_that_a_dead_send_worker_asked_for_ends(rig: PullRig) -> None:
    hold(rig, 1)
    rig.ask(2, 15, sys_flag=SUSPEND)
    rig.ask(3, words=(TOPIC, b"another", b"*", None))
    unanswered, _ = rig.question((TOPIC, b"another", b"*", None))
    rig.end()
    rig.ask(4, 15, sys_flag=SUSPEND)
    rig.asked()
    wait_until(lambda: rig.waiters() == 1, describe="its successor's pull alone is held")
    rig.bind(unanswered)
    rig.arrive(0, 16, "T0")
    assert rig.reply()["ticket"] == 4


def test_a_ticket_that_comes_again_ends_the_pull_that_had_it(rig: PullRig) -> None:
    hold(rig, 1)
    rig.ask(SERIAL | 1, 15, sys_flag=SUSPEND)
    rig.asked()
    rig.arrive(0, 16, "T0")
    assert rig.reply()["ticket"] == SERIAL | 1
    assert (rig.waiters(), rig.segment.waiting_pulls()) == (0, 0)


def test_a_pull_that_does_not_want_to_wait_is_answered_at_once(rig: PullRig) -> None:
    reply = rig.pull(1, 15)
    assert (reply["code"], reply["was_held"], reply["woken"]) == (ResponseCode.PULL_NOT_FOUND, 0, 0)


def test_a_held_pull_commits_once(rig: PullRig) -> None:
    rig.ask(1, 15, sys_flag=SUSPEND | COMMIT, commit_offset=4)
    resolve_id, _ = rig.question()
    rig.bind(resolve_id)
    wait_until(lambda: rig.waiters() == 1, describe="the pull is held")
    row = rig.segment.offset_row(GROUP, TOPIC, 0)
    assert rig.segment.committed(row) == 4
    rig.segment.commit(row, 9)
    rig.store.append("TopicA", 0, b"what it waits for", TAGS="T1")
    rig.dispatch()
    rig.arrive(0, 16, "T1")
    assert rig.reply()["was_held"] == 1
    assert rig.segment.committed(row) == 9


# A successor -----------------------------------------------------------------------------------------------------


def test_a_new_worker_forgets_what_its_predecessor_held_and_not_what_others_hold(tmp_path: Path) -> None:
    def puller_of(queue_id: int) -> int:
        hashed = queue_id
        for byte in TOPIC:
            hashed = (hashed * 31 + byte) & 0xFFFFFFFF
        return hashed % 2

    with shared_segment() as segment:
        queues = range(8)
        for queue_id in queues:
            segment.set_queue_word(segment.queue_row(TOPIC, queue_id, True), "waiters", 10)
        segment.set_worker_word(PULL_ROW, "parked", 80)
        rig = PullRig(tmp_path, segment, puller_count=2)
        left = [rig.waiters(queue_id) for queue_id in queues]
        rig.close()
        assert left == [0 if puller_of(queue_id) == 0 else 10 for queue_id in queues]
        assert segment.waiting_pulls() == 0
        assert 0 < sum(left) < 80


# What lies far behind ----------------------------------------------------------------------------------------------


def drop_log(rig: PullRig) -> Path:
    """Put the first file of the log out of memory."""
    path = rig.store.log_file(0)
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    drop_pages(path, 0, path.stat().st_size)
    assert resident_share(path) == 0
    return path


def test_messages_far_behind_the_end_are_in_memory_before_they_are_handed_over(rig: PullRig, tmp_path: Path) -> None:
    if keeps_pages(tmp_path):
        pytest.skip(f"{tmp_path} lies in memory: pages of its files never leave it")
    path = drop_log(rig)
    rig.segment.set("readable_offset", FAR)
    reply = rig.pull(1)
    assert bodies(rig, reply) == expected(0)
    assert resident_share(path) == 1
    assert rig.segment.worker_word(PULL_ROW, "bytes") >= path.stat().st_size

    def next_pull_reads() -> int:
        before = rig.segment.worker_word(PULL_ROW, "bytes")
        rig.ask(2)
        rig.reply()
        return rig.segment.worker_word(PULL_ROW, "bytes") - before

    # For a second they are taken to be there still.
    wait_until(lambda: next_pull_reads() == 0, DEADLINE_S, "a pull that comes within the second")


def test_messages_near_the_end_are_not_read(rig: PullRig) -> None:
    rig.pull(1)
    assert rig.segment.worker_word(PULL_ROW, "bytes") == 0


def test_messages_whose_file_is_gone_are_handed_over_all_the_same(rig: PullRig) -> None:
    # The send worker finds out, and asks the client to come again.
    rig.store.log_file(0).unlink()
    rig.segment.set("readable_offset", FAR)
    assert rig.pull(1)["code"] == ResponseCode.SUCCESS
    assert rig.segment.worker_word(PULL_ROW, "bytes") == 0


# Filters -----------------------------------------------------------------------------------------------------------


def filtered(rig: PullRig, sql: str, ticket: int = 1, queue_offset: int = 0, **changes: int) -> dict[str, Any]:
    """Pull by a filter that the broker process answers with."""
    rig.ask(ticket, queue_offset, **changes)
    rig.bind(rig.question()[0], sql=sql)
    return rig.reply()


def make_cold(rig: PullRig) -> None:
    """Have the whole log looked at as one that may be on disk only."""
    rig.segment.set("cold_end", FAR)


@pytest.mark.parametrize("cold", [False, True])
def test_a_filter_chooses_by_the_properties_in_the_log(rig: PullRig, cold: bool) -> None:
    if cold:
        make_cold(rig)
    reply = filtered(rig, "TAGS IN ('T1', 'T7') AND none IS NULL")
    assert (reply["code"], reply["next_begin_offset"]) == (ResponseCode.SUCCESS, 15)
    assert bodies(rig, reply) == expected(0, 0, "T1")
    # Remembered with the binding.
    rig.ask(2, 5)
    assert bodies(rig, rig.reply()) == expected(0, 5, "T1")


@pytest.mark.parametrize("cold", [False, True])
def test_a_pull_whose_filter_wants_nothing_goes_on_behind_what_was_looked_at(rig: PullRig, cold: bool) -> None:
    if cold:
        make_cold(rig)
    reply = filtered(rig, "TAGS > 5", sys_flag=SUSPEND)
    assert (reply["code"], reply["status"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, STATUS["NO_MATCHED_MESSAGE"])
    assert (reply["message_count"], reply["next_begin_offset"]) == (0, 15)


def test_a_binding_without_a_filter_takes_the_old_one_away(rig: PullRig) -> None:
    assert bodies(rig, filtered(rig, "TAGS = 'T1'")) == expected(0, 0, "T1")
    rig.segment.bump_group(GROUP)
    rig.ask(2)
    rig.bind(rig.question()[0])
    assert bodies(rig, rig.reply()) == expected(0)


def test_a_filter_that_is_damaged_is_not_used(rig: PullRig) -> None:
    rig.ask(1)
    rig.bind(rig.question()[0], sql="TAGS = 'T1'", filter_size=17)
    assert rig.reply()["code"] == ResponseCode.SYSTEM_BUSY


def append(rig: PullRig, tag: str) -> None:
    """A message comes into queue 0, and the reput worker says so."""
    rig.store.append(queue_id=0, body=tag.encode(), TAGS=tag)
    rig.dispatch()
    rig.arrive(0, rig.store.next_offsets["TopicA", 0], tag)


def test_a_held_pull_stays_held_until_a_message_comes_that_its_filter_wants(rig: PullRig) -> None:
    rig.ask(1, 15, sys_flag=SUSPEND)
    rig.bind(rig.question()[0], sql="TAGS = 'wanted'")
    wait_until(lambda: rig.waiters() == 1, describe="the pull is held")
    for number in range(3):
        append(rig, f"unwanted {number}")
        # It is looked at and held again, behind the message.
        turns = rig.segment.worker_word(PULL_ROW, "turns")
        wait_until(
            lambda turns=turns: rig.segment.worker_word(PULL_ROW, "turns") > turns and rig.waiters() == 1,
            describe="held again",
        )
    assert rig._replies.pop() is None
    append(rig, "wanted")
    reply = rig.reply()
    assert (reply["ticket"], reply["code"], reply["was_held"]) == (1, ResponseCode.SUCCESS, 1)
    assert (reply["message_count"], reply["next_begin_offset"]) == (1, 19)
    assert rig.waiters() == 0


def test_a_pull_that_was_held_for_nothing_need_not_look_at_it_again(rig: PullRig) -> None:
    rig.ask(1, 15, sys_flag=SUSPEND, suspend_timeout_ms=1_500)
    rig.bind(rig.question()[0], sql="TAGS = 'wanted'")
    wait_until(lambda: rig.waiters() == 1, describe="the pull is held")
    append(rig, "unwanted")
    reply = rig.reply()
    assert (reply["code"], reply["next_begin_offset"]) == (ResponseCode.PULL_NOT_FOUND, 16)


@pytest.mark.parametrize("sql", ["TAGS = 'none'", None], ids=["a filter", "a tag"])
def test_a_filter_that_wants_little_looks_further_than_tags_do(tmp_path: Path, sql: str | None) -> None:
    """Units are few bytes each. Who wants one message in a thousand need not ask for each eight hundred."""
    count = 1200
    geometry = replace(GEOMETRY, consume_queue_file_size=20 * count, commit_log_file_size=1 << 20)
    with shared_segment() as segment:
        rig = PullRig(tmp_path, segment, 2 * count, geometry)
        try:
            rig.ask(1)
            rig.bind(rig.question()[0], () if sql else ("none",), sql or "")
            assert rig.reply()["next_begin_offset"] == (count if sql else 800)
        finally:
            rig.close()


def test_a_filter_that_is_dear_is_run_over_some_messages_at_a_time(rig: PullRig) -> None:
    # 5,000 texts are so many steps: of a scan that may take 200,000, some forty messages.
    dear = f"TAGS IN ({', '.join(repr(str(number)) for number in range(3_500))}, 'T1')"
    for _ in range(100):
        rig.store.append(queue_id=0, body=b"x" * 10, TAGS="none")
    rig.dispatch()
    rig.segment.set_queue_word(rig.segment.queue_row(TOPIC, 0), "max_offset", 115)
    at, answers = 15, 0
    while at < 115:
        reply = filtered(rig, dear, queue_offset=at) if answers == 0 else (rig.ask(answers + 1, at), rig.reply())[1]
        assert reply["code"] in (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND)
        assert reply["next_begin_offset"] > at
        at, answers = reply["next_begin_offset"], answers + 1
    assert answers > 1


def test_a_filtered_pull_that_ends_before_its_turn_is_not_answered(rig: PullRig) -> None:
    filtered(rig, "TAGS = 'T1'")
    assert rig._requests is not None
    # Both are in the ring before the loop looks.
    rig.segment.set_worker_word(PULL_ROW, "sleeping", 0)
    rig.ask(7)
    rig.end(7)
    rig.ask(8)
    replies = [rig.reply()]
    if replies[0]["ticket"] == 7:  # the loop was faster
        replies.append(rig.reply())
    assert replies[-1]["ticket"] == 8


@pytest.mark.parametrize("cold", [False, True])
def test_records_of_a_file_that_is_gone_are_passed_over(rig: PullRig, cold: bool) -> None:
    if cold:
        make_cold(rig)
    later = [rig.store.append(queue_id=0, body=b"later %d" % number, TAGS="T1") for number in range(30)]
    rig.dispatch()
    rig.segment.set_queue_word(rig.segment.queue_row(TOPIC, 0), "max_offset", 45)
    (rig.store.paths.commit_log / file_name(0)).unlink()
    reply = filtered(rig, "TAGS = 'T1'")
    kept = [record.body for record in later if record.physical_offset >= rig.store.geometry.commit_log_file_size]
    assert 0 < len(kept) < 30
    assert bodies(rig, reply) == kept


def test_nobody_is_sent_past_records_that_cannot_be_read(rig: PullRig) -> None:
    make_cold(rig)
    file = rig.store.paths.commit_log / file_name(0)
    file.unlink()
    file.mkdir()
    reply = filtered(rig, "TAGS = 'T1'", sys_flag=SUSPEND)
    assert (reply["code"], reply["status"]) == (ResponseCode.SYSTEM_ERROR, STATUS["COMMIT_LOG_NOT_READABLE"])
    assert reply["next_begin_offset"] == 0


class WithBitmaps(PlainDispatcher):
    """Gives every message a bitmap with the bits 3 and 9, but that of T1 has no bit 9."""

    def bitmap_of(self, record: Record) -> bytes:
        return bytes([8, 0]) if b"T1" in record.properties else bytes([8, 2])


@pytest.mark.parametrize(
    ("changes", "sees_all"),
    [
        ({"bitmap_from": 0}, False),
        ({"bitmap_from": -1}, True),  # made by somebody who knew nothing of the group
        ({"bitmap_from": FAR}, True),
        ({"bitmap_from": 0, "bitmap_bits": 112}, True),  # of another size
        ({"bitmap_from": 0, "bits": (3,)}, True),  # set in all
    ],
)
def test_a_bitmap_without_a_bit_of_the_group_rules_a_message_out(
    tmp_path: Path, changes: dict[str, Any], sees_all: bool
) -> None:
    geometry = replace(GEOMETRY, ext_enabled=True, ext_file_size=4096)
    with shared_segment() as segment:
        rig = PullRig(tmp_path, segment, geometry=geometry, dispatcher=WithBitmaps)
        try:
            rig.ask(1)
            rig.bind(rig.question()[0], sql="TAGS IS NOT NULL", **{"bits": (3, 9), "bitmap_bits": 16} | changes)
            found = bodies(rig, rig.reply())
            assert found == [body for body in expected(0) if sees_all or body not in expected(0, 0, "T1")]
        finally:
            rig.close()
