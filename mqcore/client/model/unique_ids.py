"""Where fast or plain is chosen for the ids of messages: the extension, or with ``MQ_PURE=1`` its plain twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.protocol.message_id import UniqueIdGenerator
else:
    from mqcore._fast.client.batch import UniqueIdGenerator

__all__ = ["UniqueIdGenerator"]
