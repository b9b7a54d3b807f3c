"""Where fast or plain is chosen for the bytes of the wire: the extensions, or their plain twins.

The twins are for ``MQ_PURE=1``, and for installations without extensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.protocol.frame import decode_frame, decode_head, encode_frame
    from mqcore.protocol.pulled import RecordFields, body_sizes, decode_pulled
    from mqcore.protocol.send_frames import SendHead
else:
    from mqcore._fast.client.frames import SendHead, decode_frame, decode_head, encode_frame
    from mqcore._fast.client.records import RecordFields, body_sizes, decode_pulled

__all__ = [
    "PURE",
    "RecordFields",
    "SendHead",
    "body_sizes",
    "decode_frame",
    "decode_head",
    "decode_pulled",
    "encode_frame",
]
