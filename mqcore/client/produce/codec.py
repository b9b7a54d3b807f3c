"""Where fast or plain is chosen for the client: the extensions, or with ``MQ_PURE=1`` their plain twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.client.consume.polled.batch import Batch, Iteration
    from mqcore.client.produce.batch_body import (
        BatchBody,
        FutureFields,
        Joiner,
        Maker,
        Receipts,
        Room,
        UniqueIdGenerator,
    )
    from mqcore.client.produce.exchange import Exchange
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
