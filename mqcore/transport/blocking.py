"""The calling end for threads that wait themselves: a connected socket, with TLS or without, and no event loop.

Connections of the short way of sends and of Spark's links are made here, with the errors that RemotingClient has.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from mqcore import clock
from mqcore.address import parse_peer_address
from mqcore.errors import RemotingConnectError, TlsError
from mqcore.transport.pem import reason_of

CONNECT_TIMEOUT_S: Final = 3.0
"""At most, whatever time the request has."""

LEAST_TIMEOUT_S: Final = 0.001
"""To a socket no time at all means not to wait."""


def connected(address: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> socket.socket:
    """Return a new connection to *address*, without a timeout; an ssl.SSLSocket if *tls* says what it goes by.

    It is made, and its handshake over, within *timeout_s* seconds, and CONNECT_TIMEOUT_S at most. Raises
    RemotingConnectError, and TlsError when the other end's certificate is not trusted.
    """
    peer = parse_peer_address(address)
    deadline_s = clock.monotonic_s() + min(timeout_s, CONNECT_TIMEOUT_S)
    try:
        made = socket.create_connection(peer, _left_s(deadline_s))
    except OSError as error:
        raise RemotingConnectError(f"connect to {address} failed: {error}") from error
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            made.settimeout(_left_s(deadline_s))
            made = _sealed(made, peer.host, address, tls)
        made.settimeout(None)
    except BaseException:
        made.close()
        raise
    return made


def is_quiet(connection: socket.socket) -> bool:
    """Whether nothing has come that nobody has read, the end included. Its timeout stays what it is.

    A server that speaks TLS 1.3 sends tickets when it likes: they are taken, and are no message. What there is else is
    lost: such a connection is of no use when nobody has asked for anything.
    """
    # Not select: it knows no descriptors from 1024 on, and nothing of what has been decrypted.
    waits_s = connection.gettimeout()
    connection.settimeout(0)
    try:
        if isinstance(connection, ssl.SSLSocket):
            connection.recv(1)
        else:
            connection.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        pass
    finally:
        connection.settimeout(waits_s)
    return False


def cut(connection: socket.socket) -> None:
    """Let the thread fail that waits on *connection*, which to close it would not do. Raises OSError when it is over.

    Not by the method of an SSLSocket: that one takes the keys away first, and what its thread wrote in between would
    leave as plain text.
    """
    socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _sealed(plain: socket.socket, host: str, address: str, tls: ssl.SSLContext) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise TlsError(f"connect to {address} failed: TLS: {reason_of(error)}") from error
    except OSError as error:
        reason = f"TLS: {reason_of(error)}" if isinstance(error, ssl.SSLError) else str(error)
        raise RemotingConnectError(
            f"connect to {address} failed in the TLS handshake (does the peer know TLS?): {reason}"
        ) from error


def _left_s(deadline_s: float) -> float:
    return max(deadline_s - clock.monotonic_s(), LEAST_TIMEOUT_S)
