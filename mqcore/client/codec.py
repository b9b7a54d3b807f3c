"""Where fast or plain is chosen for the client: the extensions, or with ``MQ_PURE=1`` their plain twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.client.batch_body import BatchBody, FutureFields, Joiner, Maker, Receipts, Room, UniqueIdGenerator
    from mqcore.client.exchange import Exchange
    from mqcore.client.polled_batch import Batch, Iteration
else:
    from mqcore._fast.client.batch import BatchBody, FutureFields, Joiner, Maker, Receipts, Room, UniqueIdGenerator
    from mqcore._fast.client.exchange import Exchange
    from mqcore._fast.client.polled import Batch, Iteration

__all__ = [
    "Batch",
    "BatchBody",
    "Exchange",
    "FutureFields",
    "Iteration",
    "Joiner",
    "Maker",
    "Receipts",
    "Room",
    "UniqueIdGenerator",
]
