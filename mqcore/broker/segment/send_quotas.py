"""Quotas of the sends that no send worker could read, or had no leave to serve: they are asked about here.

The rows that count are those of the workers, so it makes no difference who has asked.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.quotas import Quotas
from mqcore.broker.ports import Channel
from mqcore.codes import RequestCode
from mqcore.config import Settings
from mqcore.config.quotas import parse_quotas
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_id import packed_ip

SEND: Final = 0
SEND_CODES: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
LENGTH: Final = struct.Struct(">i")


class SendQuotas:
    """The quotas of the broker process."""

    def __init__(self, settings: Settings, segment: SharedSegment) -> None:
        self._quotas = Quotas(segment, ())
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Go by *settings*."""
        self._delay_max_ms = settings.mqcore.quota_delay_max_ms
        self._quotas.use(parse_quotas(settings.mqcore.quotas))
        self._is_on = self._quotas.has_any(SEND)

    def count(self, code: int) -> bool:
        """Tell whether requests of that code have quotas."""
        return self._is_on and code in SEND_CODES

    async def admit(self, channel: Channel, request: RemotingCommand) -> str | None:
        """Return when *request* may be served, or at once why it may not."""
        names = _names(request)
        client = packed_ip(channel.remote_ip)
        wait_ms = self._quotas.wait_ms(SEND, *names, client)
        if wait_ms > self._delay_max_ms:
            return (
                "[REJECTREQUEST]system busy, start flow control for a while, cause: quota, this send would have to "
                f"wait for {wait_ms}ms"
            )
        self._quotas.charge(SEND, *names, client, _message_count(request), len(request.body))
        await asyncio.sleep(wait_ms / 1000)
        return None


def _names(request: RemotingCommand) -> tuple[bytes, bytes]:
    fields = request.ext_fields or {}
    topic, group = ("topic", "producerGroup") if request.code == RequestCode.SEND_MESSAGE else ("b", "a")
    return fields.get(topic, "").encode(), fields.get(group, "").encode()


def _message_count(request: RemotingCommand) -> int:
    fields = request.ext_fields or {}
    mark = "batch" if request.code == RequestCode.SEND_MESSAGE else "m"
    if request.code != RequestCode.SEND_BATCH_MESSAGE and fields.get(mark, "").lower() != "true":
        return 1
    count = at = 0
    while len(request.body) - at >= LENGTH.size:
        (size,) = LENGTH.unpack_from(request.body, at)
        if not LENGTH.size <= size <= len(request.body) - at:
            break
        count += 1
        at += size
    return max(1, count)
