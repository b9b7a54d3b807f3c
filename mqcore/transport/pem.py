"""Files of certificates and keys, and what OpenSSL says of them."""

from __future__ import annotations

import ssl
from pathlib import Path

from mqcore.errors import TlsError

FILE_SIZE_MAX = 4 * 2**20
"""Bytes; the certificates of all authorities that systems trust are 220 kB."""


def read_pem(name: str, path: str) -> bytes:
    """The bytes of the file that the setting *name* names. Raises TlsError."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise TlsError(f"{name}: cannot read {path}: {error.strerror}") from error
    if len(data) > FILE_SIZE_MAX or b"-----BEGIN " not in data:
        raise TlsError(f"{name}: {path} is not a PEM file")
    return data


def reason_of(error: BaseException) -> str:
    """An error of TLS in OpenSSL's words, without where in its sources that was."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error)
