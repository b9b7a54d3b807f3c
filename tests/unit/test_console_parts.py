"""The parts of the console that need no broker: bodies, traces, settings, sessions, names, and what is asked again."""

from __future__ import annotations

import asyncio
import socket
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message

from mqcore import clock
from mqcore.admin.command_line import cli
from mqcore.client.admin.traces import Trace, steps_of
from mqcore.client.asynchronous import Client
from mqcore.client.model.messages import MessageKind
from mqcore.client.model.outcome import ConsumeCode
from mqcore.client.telemetry.trace import TraceBean, TraceContext, TraceKind, encode_trace
from mqcore.client.telemetry.trace_reading import decode_trace
from mqcore.config import SETTINGS
from mqcore.config.passwords import read_password
from mqcore.config.table import Mark
from mqcore.console import recent, sessions
from mqcore.console.application import application
from mqcore.console.data.bodies import HEX_SHOWN_MAX, TEXT_SHOWN_MAX, BodyForm, glimpse, hex_dump, shown_body
from mqcore.console.data.groups import GroupDetail, GroupStanding, MemberSays
from mqcore.console.data.settings import Origin, lines_of
from mqcore.console.guard import HEADERS
from mqcore.console.options import ConsoleOptions, password_for
from mqcore.console.pages import address, bytes_text, count_text, duration_text, line_points, rate_text, time_text
from mqcore.console.sessions import Door, Sessions, TooManyGuessesError
from mqcore.console.views.login import inner_path
from mqcore.errors import ClientError, ConfigError
from mqcore.protocol.bodies import ClientConnection

# Bodies.


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"plain words", BodyForm.TEXT),
        (b'{"a": 1}', BodyForm.JSON),
        (b" [1, 2]", BodyForm.JSON),
        (b"{not json", BodyForm.TEXT),
        (b"[" * 100_000, BodyForm.TEXT),
        (b"\xff\xfe", BodyForm.HEX),
        (b"a\x00b", BodyForm.HEX),
        (b"", BodyForm.TEXT),
    ],
)
def test_a_body_is_shown_as_what_it_is(body: bytes, form: BodyForm) -> None:
    assert shown_body(body).form is form


def test_a_body_that_is_not_of_the_form_is_shown_all_the_same() -> None:
    shown = shown_body(b"\xffwords", BodyForm.JSON)
    assert "not JSON" in shown.note
    assert "words" in shown.text
    assert "not UTF-8" in shown_body(b"\xff", BodyForm.TEXT).note


def test_a_large_body_is_cut_in_each_form() -> None:
    body = b'"' + b"x" * (4 << 20) + b'"'
    for form in BodyForm:
        shown = shown_body(body, form)
        assert len(shown.text) <= max(TEXT_SHOWN_MAX, 5 * HEX_SHOWN_MAX)
        assert "first" in shown.note
        assert shown.size == len(body)


def test_hex_has_offsets_bytes_and_what_can_be_read() -> None:
    assert hex_dump(b"AB\x00" * 6).splitlines() == [
        "00000000  41 42 00 41 42 00 41 42 00 41 42 00 41 42 00 41  AB.AB.AB.AB.AB.A",
        "00000010  42 00                                            B.",
    ]


def test_a_glimpse_is_one_short_line() -> None:
    assert glimpse(b"a\n b\t" + b"c" * 1000) == "a b " + "c" * 76
    assert glimpse(b"\xff\x00") == "ff 00"
    # A character that is cut in two does not make bytes of a text.
    assert glimpse("ü".encode() * 200).startswith("üü")


# Traces.


def test_records_are_read_back_as_they_were_written() -> None:
    bean = TraceBean(topic="T", msg_id="ID", tags="t", keys="k1 k2", store_host="h:1", body_length=3)
    sent = TraceContext(kind=TraceKind.PUB, group="P", beans=(bean,), timestamp_ms=5, cost_ms=2, success=True)
    before = TraceContext(kind=TraceKind.SUB_BEFORE, group="C", beans=(bean,), timestamp_ms=10, request_id="r")
    after = TraceContext(
        kind=TraceKind.SUB_AFTER, group="C", beans=(bean,), timestamp_ms=14, cost_ms=4, success=False, request_id="r",
        context_code=ConsumeCode.EXCEPTION,
    )  # fmt: skip
    ended = TraceBean(topic="T", msg_id="ID", message_kind=MessageKind.COMMIT, transaction_state="COMMIT_MESSAGE")
    end = TraceContext(kind=TraceKind.END_TRANSACTION, group="P", beans=(ended,), timestamp_ms=7)
    events = decode_trace("".join(map(encode_trace, (sent, before, after, end))))
    assert [event.kind for event in events] == [sent.kind, before.kind, after.kind, end.kind]
    assert (events[0].topic, events[0].cost_ms, events[0].success, events[0].body_size) == ("T", 2, True, 3)
    assert (events[2].success, events[2].context_code) == (False, ConsumeCode.EXCEPTION)
    steps = steps_of(events)
    assert [(step.title, step.begin_ms, step.cost_ms) for step in steps] == [
        ("sent", 5, 2), ("transaction commit_message", 7, 0), ("consumed", 10, 4),
    ]  # fmt: skip
    assert Trace(steps).span_ms == 9


@pytest.mark.parametrize(
    "text",
    ["", "\x02", "Pub\x02", "Pub\x01x\x01\x02", "SubAfter\x01r\x01id\x01many\x02", "\x01" * 20 + "\x02", "Sub\x02"],
)
def test_records_that_nobody_understands_are_left_out(text: str) -> None:
    assert decode_trace(text) == []


def test_records_of_older_clients_lack_their_last_fields() -> None:
    (event,) = decode_trace("SubAfter\x01r\x01id\x014\x01true\x01k\x02")
    assert (event.cost_ms, event.success, event.context_code, event.group) == (4, True, None, "")


# Settings.


def test_what_differs_from_its_default_comes_first_and_secrets_not_at_all() -> None:
    secret = next(row.key for row in SETTINGS if Mark.SECRET in row.marks)
    lines = lines_of(
        {"flushDiskType": "ASYNC_FLUSH", "fileReservedTime": "48", "brokerName": "x", secret: "s", "odd": "1"}
    )
    found = {line.name: line.origin for line in lines}
    assert lines[0].name == "fileReservedTime"
    assert found == {
        "fileReservedTime": Origin.CHANGED, "flushDiskType": Origin.DEFAULT, "brokerName": Origin.COMPUTED,
        "odd": Origin.UNKNOWN,
    }  # fmt: skip


# Groups.


def says(name: str, wants: dict[str, str] | None) -> MemberSays:
    return MemberSays(ClientConnection(client_id=name), wants)


def test_members_that_want_other_things_than_most_are_named() -> None:
    members = [says("a", {"T": "x"}), says("b", {"T": "x"}), says("c", {"T": "y"}), says("d", None), says("e", {})]
    detail = GroupDetail(GroupStanding("G"), {}, None, members)
    assert detail.odd_ones("T") == {"c", "e"}
    assert GroupDetail(GroupStanding("G"), {}, None, members[:2]).odd_ones("T") == frozenset()
    assert GroupDetail(GroupStanding("G"), {}, None, members[1:3]).odd_ones("T") == {"b", "c"}  # nobody has most


# Who is looking.


def test_a_session_ends_by_idling_by_age_and_by_logging_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: now[0])
    held = Sessions()
    idle, busy, closed = held.open(), held.open(), held.open()
    held.close(closed)
    assert not held.is_open(closed)
    while now[0] < sessions.AGE_S_MAX:
        assert held.is_open(busy)
        now[0] += sessions.IDLE_S_MAX / 2
    assert not held.is_open(idle)
    now[0] += 1
    assert not held.is_open(busy)
    assert not held.is_open("made up")


def test_sessions_have_a_bound() -> None:
    held = Sessions()
    first = held.open()
    for _ in range(sessions.SESSIONS_MAX):
        held.open()
    assert not held.is_open(first)


def test_a_token_is_good_for_its_session_and_its_console_alone() -> None:
    one, other = Sessions(), Sessions()
    assert one.is_token("s", one.token("s"))
    assert not one.is_token("t", one.token("s"))
    assert not other.is_token("s", one.token("s"))
    assert not one.is_token("s", "ü")


async def test_guesses_are_ever_slower_and_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def sleep(delay_s: float) -> None:
        waited.append(delay_s)

    monkeypatch.setattr(sessions.asyncio, "sleep", sleep)
    door = Door("password")
    for _ in range(8):
        assert not await door.opens_for("guess")
    assert waited[:4] == [0.0, 0.2, 0.4, 0.8]
    assert waited[-1] == sessions.GUESS_DELAY_S_MAX
    assert await door.opens_for("password")
    assert await door.opens_for("password")
    assert waited[-1] == 0.0


async def test_too_many_guesses_are_turned_away() -> None:
    door = Door("password")
    assert not await door.opens_for("wrong")
    answers = await asyncio.gather(*(door.opens_for("x") for _ in range(12)), return_exceptions=True)
    assert sum(isinstance(answer, TooManyGuessesError) for answer in answers) == 12 - sessions.GUESSES_AT_ONCE_MAX


def test_beyond_loopback_there_is_always_a_password() -> None:
    assert password_for("127.0.0.1", None) == (None, False)
    for host in ("0.0.0.0", "::", "192.0.2.1", "broker.example"):
        password, is_made_up = password_for(host, None)
        assert password is not None
        assert len(password) >= 20
        assert is_made_up
    assert password_for("0.0.0.0", "long enough") == ("long enough", False)
    with pytest.raises(ConfigError, match="wanted 8 or more"):
        password_for("0.0.0.0", "short")
    assert "long enough" not in repr(ConsoleOptions(password="long enough"))


def test_a_password_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from the file\nanother line\n")
    file.chmod(stat.S_IRUSR)
    assert read_password("it", file, "from outside") == "from the file"
    assert read_password("it", None, "from outside") == "from outside"
    assert read_password("it", None, None) is None
    with pytest.raises(ConfigError, match="it: cannot read"):
        read_password("it", tmp_path / "none", None)


@pytest.mark.parametrize("target", ["/", "/topics?all=1", "/group?name=%RETRY%"])
def test_a_login_leads_to_pages(target: str) -> None:
    assert inner_path(target) == target


# What is asked again.


async def test_who_asks_at_once_gets_the_same_answer_and_the_broker_one_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked = [0.0], []
    monkeypatch.setattr(clock, "monotonic_s", lambda: now[0])
    answers = recent.RecentAnswers()

    async def ask() -> int:
        asked.append(1)
        await asyncio.sleep(0)
        return len(asked)

    assert await asyncio.gather(*(answers.get("k", 2.0, ask) for _ in range(50))) == [1] * 50
    now[0] = 2.0
    assert await answers.get("k", 2.0, ask) == 1
    now[0] = 2.1
    assert await answers.get("k", 2.0, ask) == 2
    answers.forget()
    assert await answers.get("k", 2.0, ask) == 3


async def test_who_goes_away_takes_nobodys_answer_and_a_failure_is_not_kept() -> None:
    answers, begun, go = recent.RecentAnswers(), asyncio.Event(), asyncio.Event()

    async def ask() -> str:
        begun.set()
        await go.wait()
        return "there"

    first = asyncio.create_task(answers.get("k", 60.0, ask))
    await begun.wait()
    second = asyncio.create_task(answers.get("k", 60.0, ask))
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    assert await second == "there"

    async def fail() -> str:
        raise ClientError("no")

    for _ in range(2):
        with pytest.raises(ClientError):
            await answers.get("f", 60.0, fail)
    assert await answers.get("f", 60.0, ask) == "there"


async def test_answers_that_are_kept_have_a_bound() -> None:
    answers = recent.RecentAnswers()

    async def ask() -> int:
        return 1

    for number in range(2 * recent.KEPT_MAX):
        await answers.get(number, 60.0, ask)
    assert len(answers._kept) == recent.KEPT_MAX


# The application and the command.


async def test_a_page_that_fails_tells_nothing_and_has_its_headers_all_the_same() -> None:
    async def boom(_: Request) -> Response:
        raise RuntimeError("secret of the inside")

    app = application(Client("127.0.0.1:1"), ConsoleOptions())
    app.router.routes.insert(0, Route("/boom", boom))
    scope = {
        "type": "http", "method": "GET", "path": "/boom", "raw_path": b"/boom", "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"127.0.0.1")], "server": ("127.0.0.1", 9880), "client": ("127.0.0.1", 1),
        "http_version": "1.1",
    }  # fmt: skip
    told: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        told.append(message)

    with pytest.raises(RuntimeError):
        await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in told[0]["headers"]}
    assert told[0]["status"] == 500
    assert {name.lower(): value for name, value in HEADERS.items()}.items() <= headers.items()
    page = b"".join(message["body"] for message in told[1:])
    assert b"The console has failed" in page
    assert b"secret of the inside" not in page


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-n", "127.0.0.1:1", "console", *arguments])


def test_a_console_that_cannot_be_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("--port", str(port))
        assert done.exit_code == 2
        assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
        assert "give another --port" in done.stderr
    assert "wanted an address of this machine" in run("--host", "no.such.host.invalid").stderr
    (tmp_path / "short").write_text("short")
    assert "wanted 8 or more" in run("--password-file", str(tmp_path / "short")).stderr
    assert "wanted a certificate and its key" in run("--certificate", str(tmp_path / "short")).stderr
    assert "--key needs --certificate" in run("--key", str(tmp_path / "short")).stderr
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "mqcore.console.serving", raising=False)
    missing = run()
    assert (missing.exit_code, "comes with mqcore[console]" in missing.stderr) == (1, True)


# Words.


def test_numbers_are_written_for_people() -> None:
    assert [count_text(value) for value in (None, 0, 1234567)] == ["–", "0", "1\u202f234\u202f567"]
    assert [rate_text(value) for value in (None, 0.04, 9.96, 12345.6)] == ["–", "0.0", "10.0", "12\u202f346"]
    assert [bytes_text(value) for value in (None, 0, 1536, 3 << 40)] == ["–", "0 B", "1.5 KiB", "3.0 TiB"]
    assert [duration_text(value) for value in (None, 12.0, 1500, 61_000, 7_260_000, 200_000_000)] == [
        "–", "12 ms", "1.5 s", "1 min 1 s", "2 h 1 min", "2 d 7 h",
    ]  # fmt: skip
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert [time_text(value) for value in (None, 0, -1)] == ["–", "–", "–"]
    assert time_text(2**62) == f"{2**62} ms"
    assert line_points([0.0, 10.0, 5.0]) == "0.0,34.0 120.0,2.0 240.0,18.0"
    assert address("/group", name="%RETRY%a b&c", page=None) == "/group?name=%25RETRY%25a+b%26c"
    assert address("/trace", id="\ud800") == "/trace?id=%3F"
