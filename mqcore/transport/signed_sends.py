"""Sends that are signed without an event loop and without a dict of their fields."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from collections.abc import Mapping
from typing import Final

from mqcore.errors import FrameError
from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.protocol.codec import SendHead
from mqcore.protocol.fastjson import quote
from mqcore.protocol.properties import encode_properties
from mqcore.transport.signing import SIGNATURE

_HEAD: Final = struct.Struct(">ii")
_EXT_FIELDS: Final = b'"extFields":{'
_SIGNATURE_SIZE: Final = 28
"""Characters of 20 bytes in base64."""


class SignedSendHead:
    """The header of the sends of one group to one queue, as SendHead, with the key and a signature in each.

    Signed are all values in the order of their names, and the body behind them. Those that differ from send to send
    (``f``, ``g``, ``h``, ``i``) lie side by side in that order, so what is before and behind them is spelled once.
    """

    __slots__ = ("_after", "_at", "_before", "_head", "_members", "_secret")

    def __init__(
        self,
        identity: Mapping[str, str],
        secret: bytes,
        group: str,
        topic: str,
        default_topic: str,
        default_topic_queue_nums: int,
        queue_id: int,
        broker_name: str,
    ) -> None:
        """*identity* has the fields that say whose signature it is, without it."""
        self._secret = secret
        self._head = SendHead(group, topic, default_topic, default_topic_queue_nums, queue_id, broker_name)
        # Their names begin with capitals, which are sorted before the letters of the send's own.
        first = [identity[name] for name in sorted(identity)]
        self._before = _text(*first, group, topic, default_topic, str(default_topic_queue_nums), str(queue_id))
        self._after = _text("0", "false", "false", broker_name)
        self._at = self._head.encode(0, 0, 0, 0, {}, b"").index(_EXT_FIELDS) + len(_EXT_FIELDS)
        members = "".join(f"{quote(name)}:{quote(value)}," for name, value in identity.items())
        self._members = _text(members, f'"{SIGNATURE}":"')

    def encode(
        self, opaque: int, sys_flag: int, born_timestamp: int, flag: int, properties: dict[str, str], body: bytes
    ) -> bytes:
        """Return the whole frame of one send. Raises HeaderError, ProtocolError or FrameError when it cannot travel."""
        frame = self._head.encode(opaque, sys_flag, born_timestamp, flag, properties, body)
        own = f"{sys_flag}{born_timestamp}{flag}{encode_properties(properties)}"
        content = b"".join((self._before, _text(own), self._after, body))
        signature = base64.b64encode(hmac.digest(self._secret, content, hashlib.sha1))
        length, header_size = _HEAD.unpack_from(frame)
        added = len(self._members) + _SIGNATURE_SIZE + 2
        if length + added > FRAME_LENGTH_MAX:
            raise FrameError(f"frame too large: got {length + added} bytes, wanted at most {FRAME_LENGTH_MAX}")
        head = _HEAD.pack(length + added, header_size + added)
        view = memoryview(frame)
        at = self._at
        return b"".join((head, view[_HEAD.size : at], self._members, signature, b'",', view[at:]))


def _text(*values: str) -> bytes:
    """As frames carry them: half of a surrogate pair is a question mark."""
    return "".join(values).encode("utf-8", "replace")
