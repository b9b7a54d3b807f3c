"""One send and its answer on a connection with TLS.

The library behind Python's ``ssl`` writes and reads the socket itself, with the interpreter's lock released. Only the
loop around it is Python's: a frame is written, an answer read, by the kernels.
"""

from __future__ import annotations

import ssl

from mqcore.protocol.buffer import Buffer
from mqcore.transport.codec import answer_of
from mqcore.transport.exchange import SendAnswer, SocketExchange
from mqcore.transport.pem import reason_of


class SealedExchange(SocketExchange):
    """One connected ssl.SSLSocket, which stays the caller's. One request at a time.

    Where an error comes before anything was sent, at most a part of a record has left: nobody can read that.
    """

    def __init__(self, connection: ssl.SSLSocket, peer: str) -> None:
        super().__init__(connection, peer)

    def _answer_of(self, payload: Buffer, opaque: int) -> SendAnswer | None:
        return answer_of(payload, opaque)

    def _why(self, error: OSError) -> str:
        return f": TLS: {reason_of(error)}" if isinstance(error, ssl.SSLError) else ""
