"""How the processes of a server log: lines on standard error, which whoever starts them sends where he likes.

A line is text, or a JSON object with the same keys for every event: ``time``, ``level``, ``process``, ``pid``,
``logger``, ``event``, ``facts`` (what the text has as key=value), and ``exception`` where there is one.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_LEVELS: Final = "INFO"
LEVEL_FORM: Final = re.compile(r"(?:([A-Za-z_][\w.]*)=)?([A-Z]+)")
PLACE: Final = re.compile(r"%%|\s*\b(\w+)=%[-+ #0]*\d*(?:\.\d+)?[a-z]|()%[-+ #0]*\d*(?:\.\d+)?[a-z]")
"""A place for an argument in the text of a record, with its key if it has one."""


class LogFormat(StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


def log_to_stderr(process: str = "", log_format: LogFormat = LogFormat.TEXT, levels: str = DEFAULT_LEVELS) -> None:
    """Log from now on; *process* stands in each line, where several processes write to one log."""
    said = f"{process} " if process else ""
    handler = logging.StreamHandler(sys.stderr)
    if log_format is LogFormat.JSON:
        handler.setFormatter(JsonLines(process))
    else:
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {said}%(name)s %(message)s"))
    logging.getLogger().addHandler(handler)
    _use(parse_levels(levels))


def parse_levels(text: str) -> dict[str, str]:
    """Return the level by logger in "INFO;mqcore.broker.registration=DEBUG"; one without a logger is everybody's."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    found = [LEVEL_FORM.fullmatch(part) for part in parts]
    levels = {match[1] or "": match[2] for match in found if match is not None and match[2] in LEVELS}
    if len(levels) < len(parts):
        raise ValueError(f"levels ({', '.join(LEVELS)}) separated by ;, each once, as in INFO;mqcore.broker=DEBUG")
    return {"": DEFAULT_LEVELS} | levels


def use_levels(text: str) -> None:
    """Go by *text*, which parse_levels reads, from now on; a process that logs in a way of its own keeps it."""
    if _levels:
        _use(parse_levels(text))


_levels: dict[str, str] = {}
"""What holds in a process that logs to standard error: level by logger."""


def _use(levels: dict[str, str]) -> None:
    for name in _levels.keys() - levels.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    _levels.clear()
    _levels.update(levels)


class JsonLines(logging.Formatter):
    """Makes one line of a record, whatever is in it."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        event, facts = event_of(record)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._process,
            "pid": record.process,
            "logger": record.name,
            "event": event,
            "facts": facts,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def event_of(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """Return what happened, and its facts by key: a text whose every argument has a key stands without them.

    So the same event has the same words each time. Another text stands as it reads.
    """
    text, arguments = str(record.msg), record.args if isinstance(record.args, tuple) else ()
    places = [place for place in PLACE.finditer(text) if place[0] != "%%"]
    keys = [place[1] for place in places]
    if not keys or len(keys) != len(arguments):
        return record.getMessage(), {}
    facts = {key: value for key, value in zip(keys, arguments, strict=True) if key}
    if not all(keys):
        return record.getMessage(), facts
    return PLACE.sub(lambda place: "%" if place[0] == "%%" else "", text).strip(), facts
