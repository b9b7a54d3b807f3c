"""Signing requests for brokers that check who asks.

Source: RocketMQ acl/common/AclClientRPCHook.java, AclUtils.java.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from mqcore.protocol.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
NOT_SIGNED = frozenset({SIGNATURE, "_UNIQUE_KEY_QUERY"})


class Signer:
    """A request hook of RemotingClient: adds the key and the signature to each request."""

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        self._identity = {ACCESS_KEY: access_key}
        if security_token:
            self._identity[SECURITY_TOKEN] = security_token
        self._secret = secret_key.encode()

    @property
    def identity(self) -> dict[str, str]:
        """The fields that say who signs."""
        return self._identity

    @property
    def secret(self) -> bytes:
        return self._secret

    def __call__(self, address: str, command: RemotingCommand) -> None:
        signed = {**(command.ext_fields or {}), **self._identity}
        command.ext_fields = {**signed, SIGNATURE: signature(signed, command.body, self._secret)}


def signature(ext_fields: dict[str, str], body: bytes, secret: bytes) -> str:
    """Return the signature of a request: of all values in the order of their names, and the body behind them."""
    content = "".join(value for name, value in sorted(ext_fields.items()) if name not in NOT_SIGNED).encode() + body
    return base64.b64encode(hmac.digest(secret, content, hashlib.sha1)).decode()
