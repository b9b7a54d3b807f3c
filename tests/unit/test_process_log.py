"""How servers log: one line an event, with the same words and keys each time, at the levels that were asked for."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from mqcore.process_log import JsonLines, event_of, parse_levels

PROGRAM = """
import logging
from mqcore.cause_log import CauseLog
from mqcore.process_log import LogFormat, log_to_stderr, use_levels

log_to_stderr("send-0", LogFormat.JSON, "WARNING;mqcore.a=DEBUG")
for levels in ("", "INFO"):
    if levels:
        use_levels(levels)
    for name in ("mqcore.a.b", "mqcore.c"):
        logging.getLogger(name).debug("tried at=%d", 1)
        logging.getLogger(name).info("done")
CauseLog(logging.getLogger("mqcore.c")).warning("pull failed", group="G", left="5%")
try:
    raise ValueError("two\\nlines")
except ValueError:
    logging.getLogger("mqcore.c").exception("it broke")
"""


def record(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("mqcore.x", logging.INFO, __file__, 1, text, arguments, None)


@pytest.mark.parametrize(
    ("text", "arguments", "event", "facts"),
    [
        ("stopped", (), "stopped", {}),
        ("slow topic=%s lag_ms=%.1f", ("T", 2.5), "slow", {"topic": "T", "lag_ms": 2.5}),
        ("at %d%% of disk=%s", (90, "/"), "at 90% of disk=/", {"disk": "/"}),
        ("at 90%% of disk=%s", ("/",), "at 90% of", {"disk": "/"}),
        ("%s", ("a setting: says=this",), "a setting: says=this", {}),
        ("lock=%s, held", ("/l",), ", held", {"lock": "/l"}),
        ("as it is 100%", (), "as it is 100%", {}),
    ],
)
def test_what_happened_is_told_from_its_facts(
    text: str, arguments: tuple[object, ...], event: str, facts: dict[str, Any]
) -> None:
    assert event_of(record(text, *arguments)) == (event, facts)


def test_a_fact_that_json_does_not_know_is_its_text() -> None:
    line = json.loads(JsonLines("").format(record("failed error=%s", OSError(5, "Input/output error"))))
    assert line["facts"] == {"error": "[Errno 5] Input/output error"}


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("", {"": "INFO"}),
        ("DEBUG", {"": "DEBUG"}),
        ("mqcore.broker=DEBUG; ERROR ;", {"": "ERROR", "mqcore.broker": "DEBUG"}),
    ],
)
def test_levels_are_read(text: str, levels: dict[str, str]) -> None:
    assert parse_levels(text) == levels


@pytest.mark.parametrize("text", ["debug", "LOUD", "a=INFO;a=DEBUG", "=INFO", "a b=INFO", "a=", "INFO;ERROR"])
def test_what_is_no_level_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="separated by ;"):
        parse_levels(text)


def test_a_process_writes_a_line_for_each_event_at_the_levels_of_its_modules() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["level"], line["logger"], line["event"]) for line in lines] == [
        ("DEBUG", "mqcore.a.b", "tried"),
        ("INFO", "mqcore.a.b", "done"),
        ("INFO", "mqcore.a.b", "done"),
        ("INFO", "mqcore.c", "done"),
        ("WARNING", "mqcore.c", "pull failed"),
        ("ERROR", "mqcore.c", "it broke"),
    ]
    assert {frozenset(line) for line in lines[:-1]} == {
        frozenset({"time", "level", "process", "pid", "logger", "event", "facts"})
    }
    assert lines[4]["facts"] == {"group": "G", "left": "5%"}
    assert "two\nlines" in lines[-1]["exception"]
