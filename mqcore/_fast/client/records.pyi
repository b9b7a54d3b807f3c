from collections.abc import Callable, Sequence
from typing import TypeVar

from typing_extensions import Buffer

from mqcore.protocol import pulled
from mqcore.protocol.message import MessageQueue

R = TypeVar("R")

class RecordFields(pulled.RecordFields): ...

def decode_pulled(
    kind: type[R],
    body: Buffer,
    queue: MessageQueue,
    tags: frozenset[str] | None,
    min_offset: int,
    max_offset: int,
    retry_topic: str | None,
    held: object,
    settler: object,
    acyclic: bool = False,
    shown: Callable[[str], str] | None = None,
) -> list[R]: ...
def body_sizes(messages: Sequence[RecordFields]) -> int: ...
