"""The pictures of the console in docs/images: ``python -m tests.docs.console_pictures`` makes them anew."""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqcore.client import Client, Message, ReceivedMessage
from tests.rigs import MqcoreBroker, make_topic
from tests.rigs.browser import Browser, missing_tools
from tests.rigs.console import ConsoleServer
from tests.rigs.console_scene import Scene, console_scene

PICTURES: Final = Path(__file__).resolve().parents[2] / "docs" / "images"
LOOKS_SEEN: Final = 9
"""How often the overview is looked at before its picture, so that its lines are some."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: of which page, and in which window."""

    name: str
    path: str
    height: int = 760
    is_dark: bool = False
    is_phone: bool = False


def pictures(scene: Scene) -> Iterator[Picture]:
    yield Picture("overview", "/", 690)
    yield Picture("overview-dark", "/", 690, is_dark=True)
    yield Picture("message", f"/message?topic={scene.topic}&id={scene.first_id}")
    yield Picture("group", f"/group?name={scene.quarrel}", 720)
    yield Picture("trace", f"/trace?id={scene.first_id}", 430)
    yield Picture("phone", "/", 780, is_phone=True)


def take(browser: Browser, url: str, picture: Picture) -> bytes:
    """Return *picture* as PNG."""
    width = 390 if picture.is_phone else 1180
    browser.look(width, picture.height, dark=picture.is_dark, phone=picture.is_phone)
    browser.open(url + picture.path)
    if picture.path == "/":
        for count in range(LOOKS_SEEN):
            browser.wait_for(
                f"document.querySelector('.line polyline')?.points.length > {count}", "another rate is there"
            )
    return browser.picture()


@contextmanager
def traffic(broker: MqcoreBroker) -> Iterator[None]:
    """Send now more and now less to a topic, and read it, so that there is something to be seen."""
    stop, topic = threading.Event(), make_topic(broker, "events")

    def send() -> None:
        with Client(broker.name_server) as mq, mq.producer("web") as producer:
            for number in itertools.count():
                for _ in range(int(40 + 30 * math.sin(number / 9))):
                    producer.send(Message(topic, b"visited"))
                if stop.wait(0.2):
                    return

    def handle(message: ReceivedMessage) -> None:
        pass

    with Client(broker.name_server) as mq, mq.consumer("audit", topic, handler=handle):
        thread = threading.Thread(target=send)
        thread.start()
        yield
        stop.set()
        thread.join()


def main() -> int:
    if missing := missing_tools():
        print(missing, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with (
            MqcoreBroker(directory / "store") as broker,
            console_scene(broker, "orders") as scene,
            traffic(broker),
            ConsoleServer(directory, broker.name_server) as console,
            Browser(directory) as browser,
        ):
            PICTURES.mkdir(exist_ok=True)
            for picture in pictures(scene):
                file = PICTURES / f"console-{picture.name}.png"
                file.write_bytes(take(browser, console.url, picture))
                print(f"{file.name} {file.stat().st_size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
