"""The console in a real browser: keys, phones, dark and light, and scripts and their policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from mqcore.client import Client, Message
from tests.docs.console_pictures import pictures, take
from tests.rigs import RunningBroker, make_topic
from tests.rigs.browser import Browser, missing_tools
from tests.rigs.console import ConsoleServer
from tests.rigs.console_scene import GIVEN_UP, Scene, console_scene

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=f"no browser can run here: {missing_tools()}")

PASSWORD: Final = "correct horse"
PNG: Final = b"\x89PNG\r\n\x1a\n"
TABS_MAX: Final = 12


@pytest.fixture(scope="module")
def scene(broker: RunningBroker) -> Iterator[Scene]:
    with console_scene(broker, "browser_orders", "BROWSER_") as scene:
        yield scene


@pytest.fixture(scope="module")
def server(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    with ConsoleServer(tmp_path_factory.mktemp("console"), broker.name_server, "--write") as running:
        yield running


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """The window, as on a desk in the light; a page of ours writes nothing to the browser's console."""
    window.look()
    window.messages.clear()
    yield window
    window.set_scripts(on=True)
    assert window.messages == []


def paths(scene: Scene) -> list[str]:
    return [
        "/", "/topics?all=1", f"/topic?name={scene.topic}", f"/messages?name={scene.topic}",
        f"/message?topic={scene.topic}&id={scene.first_id}", "/groups", f"/group?name={scene.quarrel}",
        f"/group/reset?name={scene.reader}&topic={scene.topic}&to=earliest", "/dead-letters",
        f"/dead-letters/group?group={scene.loser}", f"/trace?id={scene.first_id}", "/brokers", "/settings?all=1",
        "/accounts",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_no_page_is_wider_than_the_window(browser: Browser, server: ConsoleServer, scene: Scene, width: int) -> None:
    browser.look(width, 800, phone=width < 500)
    for path in paths(scene):
        browser.open(server.url + path)
        assert browser.run("document.documentElement.scrollWidth") <= width, path
        assert browser.run("innerWidth") == width, path
        # A field without a label is none for whoever cannot see it.
        unlabelled = "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')].filter(field =>"
        assert browser.run(unlabelled + "!field.labels.length && !field.ariaLabel).length") == 0, path
        assert browser.run("document.querySelectorAll('h1').length") == 1, path


# WCAG AA: words and what is behind them have luminances 4.5 to 1 apart.
CONTRAST: Final = """
(() => {
  const parts = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (c) => (c <= 10 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => [r, g, b].map(linear)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const found = parts(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.offsetParent) continue;
    const [one, other] = [light(parts(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) poor.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)} ${node.textContent.trim()}`);
  }
  return poor;
})()
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_words_stand_out_from_their_ground(
    browser: Browser, server: ConsoleServer, scene: Scene, dark: bool
) -> None:
    browser.look(dark=dark)
    for path in paths(scene):
        browser.open(server.url + path)
        assert browser.run(CONTRAST) == [], path
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark


def test_keys_alone_lead_anywhere(browser: Browser, server: ConsoleServer) -> None:
    browser.open(server.url + "/brokers")
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0  # it is seen while it has the keys
    browser.press("Enter")
    browser.wait_for("document.activeElement.id === 'main'", "the content has the keys")
    browser.open(server.url + "/brokers")
    for _ in range(TABS_MAX):
        browser.press("Tab")
        assert browser.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if browser.run("document.activeElement.textContent") == "Topics":
            break
    browser.press("Enter")
    browser.wait_for("location.pathname === '/topics' && document.readyState === 'complete'", "the topics are there")


def test_the_overview_renews_itself_and_leaves_alone_who_uses_it(
    browser: Browser, server: ConsoleServer, broker: RunningBroker
) -> None:
    browser.open(server.url + "/")
    browser.run("window.here = true; document.querySelector('[data-live] td').dataset.old = '1'")
    browser.wait_for("!document.querySelector('[data-old]')", "it is renewed")
    assert browser.run("window.here")  # and not loaded again
    browser.run("document.querySelector('[data-live] a').focus(); document.activeElement.dataset.old = '1'")
    asked = browser.run("performance.getEntriesByType('resource').length")
    with Client(broker.name_server) as mq, mq.producer("BROWSER_live") as producer:
        producer.send(Message(make_topic(broker, "browser_live"), b"x"))
    browser.run("new Promise(done => setTimeout(done, 4000))")
    assert browser.run("document.activeElement.dataset.old") == "1"
    assert browser.run("performance.getEntriesByType('resource').length") == asked


def test_forms_of_a_browser_are_taken(
    browser: Browser, server: ConsoleServer, scene: Scene, broker: RunningBroker
) -> None:
    topic = make_topic(broker, "browser_test")
    browser.open(f"{server.url}/topic?name={topic}")
    browser.submit("form[action^='/topic/send']", body="hello <b>you</b>", keys="k")
    assert "Sent, and stored at this place." in browser.text()
    assert "hello <b>you</b>" in browser.text("pre")
    browser.open(f"{server.url}/group?name={scene.reader}")
    browser.submit("form[action='/group/reset']", topic=scene.topic, to="earliest")
    assert "What a reset would do" in browser.text()
    browser.click("button.danger")
    assert "Done: the group goes on" in browser.text()


def test_one_tick_selects_all_dead_letters(browser: Browser, server: ConsoleServer, scene: Scene) -> None:
    browser.open(f"{server.url}/dead-letters/group?group={scene.loser}")
    browser.run("document.querySelector('[data-all]').click()")
    browser.submit("form[action='/dead-letters/resend']")
    assert f"Send {GIVEN_UP} dead letters again?" in browser.text()
    browser.click("button.danger")
    assert f"{GIVEN_UP} sent." in browser.text()


def test_pages_work_without_scripts(browser: Browser, server: ConsoleServer, scene: Scene) -> None:
    browser.set_scripts(on=False)
    browser.open(server.url + "/")
    assert browser.run("document.querySelector('meta[http-equiv=refresh]')?.content") == "10"
    browser.open(server.url + f"/messages?name={scene.topic}&by=key")
    browser.submit("form.bar", value="order-3")
    assert "order-3" in browser.text("tbody")
    browser.open(f"{server.url}/dead-letters/group?group={scene.loser}")
    browser.run("document.querySelector('input[name=id]').click()")
    browser.submit("form[action='/dead-letters/resend']")
    assert "Send 1 dead letter again?" in browser.text()


def test_what_a_message_says_is_read_and_not_run(
    browser: Browser, server: ConsoleServer, broker: RunningBroker
) -> None:
    topic = make_topic(broker, "browser_hostile")
    script = "<script>window.ran=1</script><img src=x onerror='window.ran=1'>"
    with Client(broker.name_server) as mq, mq.producer("BROWSER_hostile") as producer:
        sent = producer.send(Message(topic, script.encode(), properties={script: script}))
    for path in (f"/messages?name={topic}", f"/message?topic={topic}&id={sent.msg_id}"):
        browser.open(server.url + path)
        assert browser.run("window.ran") is None
        assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    assert browser.text("pre") == script
    # And if it did stand in a page, the policy would not let it run.
    browser.run(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<b id=late onclick=\"window.ran=1\">x</b>')"
    )
    browser.run("document.querySelector('#late').click()")
    assert browser.run("window.ran") is None
    assert any("Content Security Policy" in str(said) for said in browser.messages)
    browser.messages.clear()


def test_a_login_in_a_browser(browser: Browser, broker: RunningBroker, tmp_path: Path) -> None:
    with ConsoleServer(tmp_path, broker.name_server, env={"MQCORE_CONSOLE_PASSWORD": PASSWORD}) as guarded:
        browser.open(guarded.url + "/topics?all=1")
        assert browser.run("location.pathname") == "/login"
        browser.submit("form.login", password="wrong one")
        assert "That is not the password." in browser.text()
        browser.messages.clear()  # a browser tells of each answer 401
        browser.submit("form.login", password=PASSWORD)
        assert browser.run("location.pathname + location.search") == "/topics?all=1"
        browser.click("button.quiet")
        assert browser.run("location.pathname") == "/login"


def test_pictures_for_the_docs_are_made(browser: Browser, server: ConsoleServer, scene: Scene) -> None:
    made = {picture.name: take(browser, server.url, picture) for picture in pictures(scene)}
    assert all(picture.startswith(PNG) for picture in made.values())
    assert sum(map(len, made.values())) < 600_000
