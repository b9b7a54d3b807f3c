"""Where fast or plain is chosen for sending: the extensions, or with ``MQ_PURE=1`` their plain twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.client.produce.batch_body import BatchBody, FutureFields, Joiner, Maker, Receipts, Room
else:
    from mqcore._fast.client.batch import BatchBody, FutureFields, Joiner, Maker, Receipts, Room

__all__ = ["BatchBody", "FutureFields", "Joiner", "Maker", "Receipts", "Room"]
