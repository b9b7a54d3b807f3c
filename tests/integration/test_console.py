"""The console's pages over HTTP, against a real broker: what they show, what they change, and whom they let."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from mqcore.client import Client, Message
from mqcore.console.application import ROUTES
from mqcore.console.patience import CONNECTIONS_MAX
from tests.rigs import RunningBroker, make_topic
from tests.rigs.console import ConsoleServer, PageClient
from tests.rigs.console_scene import GIVEN_UP, ORDERS, Scene, console_scene
from tests.waiting import wait_until

DEADLINE_S: Final = 60.0
PASSWORD: Final = "correct horse"
EVIL: Final = """<script>alert(1)</script><img src=x onerror=alert(1)>"'>{{7*7}}</pre>"""


@pytest.fixture(scope="module")
def scene(broker: RunningBroker) -> Iterator[Scene]:
    with console_scene(broker, "console_orders", "CONSOLE_") as scene:
        yield scene


@pytest.fixture(scope="module")
def server(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    directory = tmp_path_factory.mktemp("console")
    with ConsoleServer(directory, broker.name_server, "--write") as running:
        yield running


@pytest.fixture(scope="module")
def guarded(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """One that is read-only, and asks for a password."""
    directory = tmp_path_factory.mktemp("guarded")
    (directory / "password").write_text(PASSWORD + "\n")
    options = ("--password-file", str(directory / "password"), "--allow-host", "console.example")
    with ConsoleServer(directory, broker.name_server, *options) as running:
        yield running


@pytest.fixture
def pages(server: ConsoleServer) -> PageClient:
    return PageClient(server.port)


def log_in(guarded: ConsoleServer) -> PageClient:
    client = PageClient(guarded.port)
    token = client.get("/login").token
    assert client.post("/login", {"csrf": token, "password": PASSWORD}).status == 303
    return client


# What pages show.


def test_the_overview_has_brokers_and_the_groups_that_are_behind(pages: PageClient, scene: Scene) -> None:
    text = pages.get("/").text
    assert "broker-a" in text
    assert "Fullest disk" in text
    assert scene.reader in text or "group" in text  # of a shared broker others may be more behind


def test_topics_are_listed_and_searched(pages: PageClient, scene: Scene) -> None:
    assert scene.topic in pages.get("/topics", search=scene.topic).text
    assert "%RETRY%" not in pages.get("/topics").text
    assert f"%RETRY%{scene.reader}" in pages.get("/topics", all=1, search=scene.reader).text
    assert "No topic has that in its name" in pages.get("/topics", search="nobody has this").text


def test_a_topic_shows_its_queues_and_who_reads_it(pages: PageClient, scene: Scene) -> None:
    text = pages.get("/topic", name=scene.topic).text
    assert f"Messages held {ORDERS}" in text
    assert "broker-a 0 0 6 6" in text
    assert all(group in text for group in (scene.reader, scene.quarrel, scene.loser))
    assert "Nobody reads this topic" in pages.get("/topic", name="TBW102").text


def test_messages_are_found_in_each_way(pages: PageClient, scene: Scene) -> None:
    def found(**by: object) -> str:
        return pages.get("/messages", name=scene.topic, **by).text

    assert found().count("order-") == ORDERS
    assert found(by="time", value="1h").count("order-") == ORDERS
    assert "Nothing was stored from then on" in found(by="time", value="2100-01-01")
    assert found(by="offset", queue="broker-a/1", value=4).count("order-") == 2
    assert "has offsets 0 to 5, not 99" in found(by="offset", queue="broker-a/1", value=99)
    assert found(by="key", value="order-7").count("order-7") >= 1
    assert "order-8" not in found(by="key", value="order-7")
    assert "order-0" in found(by="id", value=scene.first_id)
    assert "Nothing asked yet" in found(by="key")


def test_a_message_shows_its_body_in_each_form(pages: PageClient, scene: Scene) -> None:
    def body(**form: str) -> str:
        return pages.get("/message", topic=scene.topic, id=scene.first_id, **form).text

    assert '"order": 0, "city"' in body(**{"as": "json"})  # which is in lines of its own there
    assert '{"order": 0, "city": "Lisbon"' in body(**{"as": "text"})
    assert "00000000 7b 22 6f 72 64 65 72" in body(**{"as": "hex"})
    assert scene.first_id in body()


def test_a_group_shows_its_members_their_quarrel_and_its_lag(pages: PageClient, scene: Scene) -> None:
    text = pages.get("/group", name=scene.quarrel).text
    assert "conflict" in text
    assert "differs new || paid" in text
    assert text.count("differs") == 2
    assert "python" in text
    reader = pages.get("/group", name=scene.reader).text
    assert "Nobody is online" in reader
    assert "Lag 8" in reader
    assert "differs" not in reader


def test_the_list_of_groups_has_their_lag(pages: PageClient, scene: Scene) -> None:
    assert f"{scene.reader} 8" in pages.get("/groups", search=scene.reader).text


def test_a_trace_is_a_line_of_time(pages: PageClient, scene: Scene) -> None:
    text = pages.get("/trace", id=scene.first_id).text
    assert re.search(r"sent by CONSOLE_shop, stored at .* took \d+ ms.*consumed by CONSOLE_billing", text), text
    assert "Nobody has traced it" in pages.get("/trace", id="7F00000100002A9F0000000000000000").text


def test_brokers_settings_and_accounts_are_shown(pages: PageClient) -> None:
    assert "No broker has a slave" in pages.get("/brokers").text
    assert "bootTimestamp" in pages.get("/broker", address="broker-a").text
    changed = pages.get("/settings").text
    assert re.search(r"mappedFileSizeCommitLog changed \d+ 1073741824", changed)
    assert "flushDiskType" not in changed
    assert "flushDiskType" in pages.get("/settings", all=1).text
    assert "Access control is off" in pages.get("/accounts").text


def test_errors_say_what_is_wrong_and_what_to_do(pages: PageClient, scene: Scene) -> None:
    missing = pages.get("/group", name="NOBODY_HAS_THIS")
    assert (missing.status, "No broker has the group NOBODY_HAS_THIS." in missing.text) == (404, True)
    assert pages.get("/topic", name="no_such_topic").status == 404
    wrong = pages.get("/messages", name=scene.topic, by="offset", queue="broker-a/0", value="many")
    assert (wrong.status, "got 'many', wanted a whole number" in wrong.text) == (400, True)
    assert pages.get("/broker", address="10.255.255.1:9").status == 404  # it does not ask whatever a link names
    assert pages.get("/nothing").status == 404


def test_a_console_without_a_name_server_says_so(tmp_path: Path) -> None:
    with ConsoleServer(tmp_path, "127.0.0.1:1") as alone:
        answer = PageClient(alone.port).get("/")
        assert answer.status == 502
        assert "127.0.0.1:1" in answer.text


# What it changes.


def test_a_test_message_is_sent_and_shown(pages: PageClient, broker: RunningBroker) -> None:
    topic = make_topic(broker, "console_test")
    token = pages.get("/topic", name=topic).token
    fields = {
        "csrf": token,
        "body": "grüße\r\nzwei",
        "tag": "t",
        "keys": "k1 k2",
        "queue": "broker-a/2",
        "properties": "a=b=c",
    }
    sent = pages.post(f"/topic/send?name={topic}", fields)
    page = pages.follow(sent, "/topic/send").text
    assert "Sent, and stored at this place." in page
    with Client(broker.name_server) as mq:
        (queue,) = [queue for queue in mq.queues(topic) if queue.queue_id == 2]
        (message,) = mq.pull(queue, 0).messages
    assert message.body.decode() == "grüße\nzwei"
    assert (message.tag, list(message.keys), message.properties["a"]) == ("t", ["k1", "k2"], "b=c")
    bad = pages.post(f"/topic/send?name={topic}", {**fields, "properties": "no equals sign"})
    assert (bad.status, "wanted name=value" in bad.text) == (400, True)


def test_a_reset_is_shown_before_it_is_done(pages: PageClient, scene: Scene, broker: RunningBroker) -> None:
    place = {"name": scene.reader, "topic": scene.topic, "to": "earliest"}
    with Client(broker.name_server) as mq:
        before = mq.admin.group_offsets(scene.reader, scene.topic)
        preview = pages.get("/group/reset", **place)
        assert preview.text.count("again") == 4
        assert mq.admin.group_offsets(scene.reader, scene.topic) == before
        done = pages.post("/group/reset", {**place, "csrf": preview.token})
        assert "Done: the group goes on from the new offsets." in done.text
        after = mq.admin.group_offsets(scene.reader, scene.topic)
        assert {row.consumer_offset for row in after.values()} == {0}
        for queue, row in before.items():
            mq.admin.set_offset(scene.reader, queue, row.consumer_offset)
    assert pages.get("/group/reset", **{**place, "to": "soon"}).status == 400


def test_dead_letters_are_selected_and_sent_again(pages: PageClient, scene: Scene, broker: RunningBroker) -> None:
    assert scene.loser in pages.get("/dead-letters").text
    listed = pages.get("/dead-letters/group", group=scene.loser)
    ids = re.findall(r'name="id" value="(\w+)"', listed.html)
    assert len(ids) == GIVEN_UP
    fields = [("csrf", listed.token), ("group", scene.loser), ("id", ids[0]), ("id", ids[1])]
    asked = pages.post("/dead-letters/resend", fields)
    assert "Send 2 dead letters again?" in asked.text
    with Client(broker.name_server) as mq:
        assert not retried(mq, scene.loser)
        done = pages.post("/dead-letters/resend", [*fields, ("confirmed", "1")])
        assert "2 sent." in done.text
        wait_until(lambda: retried(mq, scene.loser) == 2, DEADLINE_S, "both are in its retry topic")
    none = pages.post("/dead-letters/resend", fields[:2])
    assert (none.status, "at least one that is ticked" in none.text) == (400, True)


def retried(mq: Client, group: str) -> int:
    return sum(row.max_offset for row in mq.admin.offsets(f"%RETRY%{group}").values())


# Whom it lets.


def test_connections_that_do_not_say_what_they_want_keep_nobody_out(server: ConsoleServer) -> None:
    with ExitStack() as held:
        for number in range(2 * CONNECTIONS_MAX):
            slow = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "[: number % 40])
            if number % 16 == 0:
                assert PageClient(server.port).get("/healthz").status == 200, number
        assert PageClient(server.port).get("/topics").status == 200


def test_everything_from_a_broker_is_escaped(pages: PageClient, broker: RunningBroker) -> None:
    topic = make_topic(broker, "console_hostile")
    group = "CONSOLE_HOSTILE"
    with Client(broker.name_server, instance_name=EVIL) as mq, mq.producer("console_hostile") as producer:
        key = EVIL.replace(" ", "")
        sent = producer.send(Message(topic, EVIL.encode(), tag=key, keys=[key], properties={EVIL: EVIL}))
        producer.send(Message(topic, bytes(range(256)), keys=["\ud7ff\u202e\x07"]))
        producer.send(Message(topic, b'"\\ud800 half a pair" ' + b"[" * 100_000))
        producer.send(Message(topic, b'["\\ud800"]'))
        with mq.consumer(group, {topic: key}, from_where="earliest"):
            wait_until(lambda: mq.admin.group_members(group), DEADLINE_S, "the member is there")
            shown = [pages.get("/group", name=group), pages.get("/groups", search=group)]
        shown += [
            pages.get("/messages", name=topic),
            pages.get("/messages", name=topic, by="key", value=key),
            *(pages.get("/message", topic=topic, id=sent.msg_id, **{"as": form}) for form in ("text", "json", "hex")),
            *(pages.get("/message", topic=topic, broker="broker-a", queue=queue, offset=0) for queue in range(4)),
            pages.get("/trace", id=EVIL),
            pages.get("/topics", search=EVIL),
            pages.get("/topic", name=EVIL),
            pages.get("/group", name=EVIL),
            pages.get("/messages", name=topic, by=EVIL),
        ]
    for answer in shown:
        assert answer.status in (200, 400, 404), answer.text
        assert "<script>alert" not in answer.html
        assert "<img" not in answer.html
        assert "49" not in re.findall(r"onerror=alert\(1\)&gt;.{0,20}", answer.html)
        assert "&lt;script&gt;alert(1)" in answer.html or EVIL not in answer.text
    assert EVIL in shown[4].text
    assert EVIL in shown[0].text  # its client id


def test_pages_carry_the_headers_that_keep_others_out(pages: PageClient) -> None:
    for path in ("/", "/nothing", "/static/console.css"):
        headers = pages.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "DENY")
        assert headers["Cache-Control"] == "no-store"
        assert headers["Server"] is None
    (cookie,) = PageClient(pages.port).get("/").headers.get_all("Set-Cookie")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_a_name_that_was_let_resolve_to_here_is_refused(pages: PageClient, host: str) -> None:
    answer = pages.get("/topics", {"Host": host})
    assert answer.status == 421
    assert "Topics</a>" not in answer.html


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1", "[::1]:9880", "192.0.2.7:80"])
def test_addresses_and_localhost_are_no_such_names(pages: PageClient, host: str) -> None:
    assert pages.get("/topics", {"Host": host}).status == 200


def test_each_change_needs_the_token_of_its_session_and_a_page_of_here(pages: PageClient) -> None:
    token = pages.get("/topic", name="TBW102").token
    changes = [route.path for route in ROUTES if "POST" in (getattr(route, "methods", None) or ())]
    assert len(changes) >= 5
    for path in changes:
        assert pages.post(path, {}).status == 403, path
        assert PageClient(pages.port).post(path, {"csrf": token}).status == 403, path
        for foreign in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}):
            assert pages.post(path, {"csrf": token}, foreign).status == 403, (path, foreign)
        assert pages.ask("POST", path, {"Content-Type": "text/plain"}, b"csrf=" + token.encode()).status == 415, path
        assert pages.get(path, name="TBW102").status in (200, 303, 400, 405), path
    big = pages.post("/topic/send", {"csrf": token, "body": "x" * (3 << 20)})
    assert big.status == 413


def test_a_read_only_console_changes_nothing(guarded: ConsoleServer, scene: Scene) -> None:
    client = log_in(guarded)
    page = client.get("/topic", name=scene.topic)
    assert "Send a test message" not in page.text
    assert "read-only" in page.text
    for path in ("/topic/send", "/group/reset", "/dead-letters/resend"):
        answer = client.post(path, {"csrf": page.token})
        assert (answer.status, "Start it with --write" in answer.text) == (403, True)
    assert 'type="checkbox" name="id"' not in client.get("/dead-letters/group", group=scene.loser).html


def test_a_password_is_asked_for_and_a_session_ends(guarded: ConsoleServer) -> None:
    client = PageClient(guarded.port)
    for path in ("/", "/topics", "/settings", "/accounts", "/nothing"):
        answer = client.get(path)
        assert (answer.status, answer.headers["Location"].startswith("/login")) == (303, True)
    assert client.get("/", part=1).status == 401
    assert client.post("/topic/send", {}).status == 401
    assert client.get("/static/console.css").status == 200
    assert client.get("/healthz").status == 200
    planted = dict(client.cookies)
    token = client.get("/login").token
    assert client.post("/login", {"csrf": token, "password": "wrong"}).status == 401
    assert client.post("/login", {"csrf": "0", "password": PASSWORD}).status == 403
    answer = client.post("/login", {"csrf": token, "password": PASSWORD, "next": "/topics?all=1"})
    assert (answer.status, answer.headers["Location"]) == (303, "/topics?all=1")
    assert client.cookies != planted  # a session that somebody has planted stays outside
    page = client.get("/")
    assert page.status == 200
    before = dict(client.cookies)
    client.post("/logout", {"csrf": page.token})
    client.cookies = before
    assert client.get("/").status == 303


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\n"]
)
def test_a_login_leads_nowhere_else(guarded: ConsoleServer, target: str) -> None:
    client = PageClient(guarded.port)
    answer = client.post("/login", {"csrf": client.get("/login").token, "password": PASSWORD, "next": target})
    assert (answer.status, answer.headers["Location"]) == (303, "/")


def test_a_name_that_is_allowed_is_one_of_ours(guarded: ConsoleServer) -> None:
    assert log_in(guarded).get("/topics", {"Host": "console.example"}).status == 200


def test_no_page_takes_anything_from_elsewhere(pages: PageClient, scene: Scene) -> None:
    for path in ("/", f"/topic?name={scene.topic}", f"/group?name={scene.quarrel}", "/settings"):
        html = pages.get(path).html
        assert not re.findall(r'(?:src|href|action)="(?!/|#|\?)[^"]*"', html)
        assert " style=" not in html
        assert "<style" not in html
        assert not re.search(r"<script(?! src=)|\son\w+=", html)
