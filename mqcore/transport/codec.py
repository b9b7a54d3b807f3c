"""Where fast or plain is chosen for exchanges: the extension, or with ``MQ_PURE=1`` its plain twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.transport.exchange import Exchange, answer_of
else:
    from mqcore._fast.client.exchange import Exchange, answer_of

__all__ = ["Exchange", "answer_of"]
