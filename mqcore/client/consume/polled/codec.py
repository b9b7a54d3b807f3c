"""Where fast or plain is chosen for polled messages: the extension, or with ``MQ_PURE=1`` its plain twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.client.consume.polled.batch import Batch, Iteration
else:
    from mqcore._fast.client.polled import Batch, Iteration

__all__ = ["Batch", "Iteration"]
