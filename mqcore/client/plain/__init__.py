"""The face of the client for threads: each object drives its asyncio counterpart, in one loop in the background."""

from typing import TYPE_CHECKING

from mqcore.lazy_names import lazy_names

if TYPE_CHECKING:
    from mqcore.client.plain.client import Client, Producer, TransactionProducer

__all__ = ["Client", "Producer", "TransactionProducer"]

# The modules of this room stand below these names, which are for programs that import them from here.
__getattr__ = lazy_names(globals(), dict.fromkeys(__all__, "mqcore.client.plain.client"))
