"""The console's pages about Apache's broker."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rigs import ApacheServer
from tests.rigs.console import ConsoleServer, PageClient
from tests.rigs.console_scene import GIVEN_UP, ORDERS, console_scene


def test_pages_show_apaches_broker(shared_apache: ApacheServer, tmp_path: Path) -> None:
    with (
        console_scene(shared_apache, "console_orders", "CONSOLE_") as scene,
        ConsoleServer(tmp_path, shared_apache.name_server, "--write") as console,
    ):
        pages = PageClient(console.port)

        def text(path: str, **parameters: object) -> str:
            answer = pages.get(path, **parameters)
            assert answer.status == 200, answer.text
            return answer.text

        assert "V4_9_8" in text("/brokers")
        assert "Fullest disk" in text("/")
        assert f"Messages held {ORDERS}" in text("/topic", name=scene.topic)
        assert text("/messages", name=scene.topic).count("order-") == ORDERS
        assert '"city"' in text("/message", topic=scene.topic, id=scene.first_id)
        assert "Lag 8" in text("/group", name=scene.reader)
        assert text("/group", name=scene.quarrel).count("differs") == 2
        assert text("/group/reset", name=scene.reader, topic=scene.topic, to="latest").count("passed over") >= 1
        assert text("/dead-letters/group", group=scene.loser).count("console_orders") == GIVEN_UP
        assert "consumed by CONSOLE_billing" in text("/trace", id=scene.first_id)
        assert re.search(r"\w+ changed", text("/settings"))
        assert pages.get("/accounts").status == 200
        assert pages.get("/broker", address=shared_apache.broker_address).status == 200
