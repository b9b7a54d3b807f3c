from typing_extensions import Buffer

from mqcore.transport.exchange import Head, SendAnswer

class Exchange:
    @property
    def answers(self) -> int: ...
    def __init__(self, descriptor: int, peer: str) -> None: ...
    def send(
        self,
        head: Head,
        opaque: int,
        sys_flag: int,
        born_timestamp: int,
        flag: int,
        properties: dict[str, str],
        body: Buffer,
        timeout_s: float,
    ) -> SendAnswer | None: ...

def decode_send_answer(payload: Buffer) -> SendAnswer: ...
def answer_of(payload: Buffer, opaque: int) -> SendAnswer | None: ...
