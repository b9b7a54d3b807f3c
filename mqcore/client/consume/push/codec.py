"""Where fast or plain is chosen for the line of plain handlers: the extension, or with ``MQ_PURE=1`` its plain twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.client.consume.push.line import HandlerLine, HandlerStretch
else:
    from mqcore._fast.client.line import HandlerLine, HandlerStretch

__all__ = ["HandlerLine", "HandlerStretch"]
