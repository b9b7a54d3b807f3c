"""Blocking connections to brokers and name servers, for executors and for the driver's planning.

Links (``mqcore.transport.link``) are kept per process for the next task (``borrow``); a forked worker never uses those
of its parent. A Python worker has one thing to do at a time, and a fork must not find half of an event loop.
"""

from __future__ import annotations

import atexit
import logging
import os
import ssl
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from mqcore.codes import LanguageCode, RequestCode
from mqcore.protocol.command import RemotingCommand, next_opaque
from mqcore.protocol.frame import HEADER_MARK_SIZE
from mqcore.protocol.headers import REQUEST_HEADERS, encode_request
from mqcore.spark.options import TLS_OPTIONS
from mqcore.transport.client_tls import ClientTls
from mqcore.transport.link import BlockingLink

logger = logging.getLogger(__name__)

IDLE_LINKS_MAX: Final = 4
"""Links to one address that are kept while nobody uses them."""
IDLE_S_MAX: Final = 60.0
"""A link unused for longer is not used again: brokers close connections that are idle for 120 s."""

_HEAD: Final = struct.Struct(">ii")


Sign = Callable[[RemotingCommand], None]
"""Adds key and signature to a request."""


@lru_cache(maxsize=8)
def _context(tls: ClientTls) -> ssl.SSLContext:
    """Files are read once in a process."""
    return tls.context(TLS_OPTIONS.__getitem__)


def request(code: RequestCode, values: Mapping[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
    """Return a request of ours with a new opaque; without *values* it has no ext fields."""
    return RemotingCommand(
        code,
        next_opaque(),
        ext_fields=None if values is None else encode_request(code, **values),
        body=body,
        language=LanguageCode.PYTHON,
    )


class RequestTemplate:
    """A request that is sent many times with a few numbers changed: its frame is encoded once and filled in.

    *slots* names the fields to fill; the opaque is always one of them. With *sign* each frame is encoded anew, since a
    signature is of all that is in it.
    """

    # Numbers that are not found elsewhere in a header, all of the longest length, so that none is part of another.
    _MARK: Final = 9_100_000_000_000_000_000
    _OPAQUE_MARK: Final = 2_100_000_007

    def __init__(
        self, code: RequestCode, values: Mapping[str, Any], slots: tuple[str, ...], sign: Sign | None = None
    ) -> None:
        self._code = code
        self._values = values
        self._sign = sign
        marks = {slot: self._MARK + number for number, slot in enumerate(slots)}
        fields = encode_request(code, **{**values, **dict.fromkeys(slots, 0)})
        names = {slot: _wire_name(code, slot) for slot in slots}
        fields |= {names[slot]: str(mark) for slot, mark in marks.items()}
        command = RemotingCommand(code, self._OPAQUE_MARK, ext_fields=fields, language=LanguageCode.PYTHON)
        header = command.encode()[_HEAD.size :].replace(b"%", b"%%")
        for slot, mark in marks.items():
            header = _replaced(header, str(mark), f"%({slot})d")
        self._header = _replaced(header, str(self._OPAQUE_MARK), "%(opaque)d")

    def frame(self, opaque: int, **numbers: int) -> bytes:
        """Return the frame with *numbers* in the slots, without a body."""
        if self._sign is not None:
            command = request(self._code, {**self._values, **numbers})
            command.opaque = opaque
            self._sign(command)
            return command.encode()
        header = self._header % {b"opaque": opaque, **{name.encode(): value for name, value in numbers.items()}}
        return _HEAD.pack(HEADER_MARK_SIZE + len(header), len(header)) + header


def _wire_name(code: RequestCode, field: str) -> str:
    return next(row.wire_name for row in REQUEST_HEADERS[code].fields if row.name == field)


def _replaced(header: bytes, mark: str, slot: str) -> bytes:
    before, found, after = header.partition(mark.encode())
    assert found, mark
    return before + slot.encode() + after


# Links per process: (pid, address, TLS) -> those that nobody uses.
_idle: defaultdict[tuple[int, str, ClientTls | None], list[BlockingLink]] = defaultdict(list)


@contextmanager
def borrow(address: str, timeout_s: float, tls: ClientTls | None = None) -> Iterator[BlockingLink]:
    """Give a link to *address*, a kept one or a new one. It is kept for the next borrower unless an error passed by
    or answers are still under way."""
    idle = _idle[(os.getpid(), address, tls)]
    link: BlockingLink | None = None
    while idle and link is None:
        candidate = idle.pop()
        if time.monotonic() - candidate.idle_since_s < IDLE_S_MAX and not candidate.is_stale:
            link = candidate
        else:
            candidate.close()
    if link is None:
        link = BlockingLink(address, timeout_s, None if tls is None else _context(tls))
    else:
        link.set_timeout(timeout_s)
    try:
        yield link
    except BaseException:
        link.close()
        raise
    if not link.is_closed and link.under_way == 0 and len(idle) < IDLE_LINKS_MAX:
        link.idle_since_s = time.monotonic()
        idle.append(link)
    else:
        link.close()


def close_idle_links() -> None:
    """Close the kept links of this process."""
    for (pid, _, _), links in _idle.items():
        while pid == os.getpid() and links:
            links.pop().close()


atexit.register(close_idle_links)
