"""The way into the commit log."""

from __future__ import annotations

from typing import Protocol

from mqcore.store.puts import InnerMessage, PutResult


class MessageSink(Protocol):
    """Appends to the commit log: all of putMessage but the delay rewriting, which the caller has done.

    A refusal is a status, never an exception. The call returns when the message is as durable as the settings ask
    (flush and replication waited for, unless ``wait_store_ok`` is False). It is not counted in ``Counters.topic_put``.
    """

    async def put(self, message: InnerMessage) -> PutResult: ...

    async def put_batch(self, message: InnerMessage) -> PutResult: ...

    async def put_pair(self, first: InnerMessage, second: InnerMessage) -> PutResult:
        """Store two messages of different queues, both or neither, whoever dies over it; the result is of *first*.

        Only *first* may list further queues. The call waits for both if *first* is to be waited for.
        """
        ...
