"""The signature of a request: what it is of, and whether it is good.

Source: RocketMQ acl/plain/PlainAccessValidator.java, acl/common/AclSigner.java.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mqcore.protocol.command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"


def sign(secret: bytes, content: bytes) -> str:
    """HMAC-SHA1 of *content*, in base 64."""
    return base64.b64encode(hmac.digest(secret, content, hashlib.sha1)).decode()


def signed_content(fields: Mapping[str, str], body: bytes, *unsigned: str) -> bytes:
    """The values of all fields but the *unsigned* in Java's order of their names, and the body behind them."""
    names = sorted((name for name in fields if name not in unsigned), key=_java_order)
    return "".join(fields[name] for name in names).encode("utf-8", "replace") + body


def signed(request: RemotingCommand, access_key: str, secret: bytes) -> RemotingCommand:
    """*request* with the key and the signature of the account."""
    fields = {**(request.ext_fields or {}), ACCESS_KEY: access_key}
    content = signed_content(fields, request.body, SIGNATURE, UNIQUE_KEY_QUERY)
    return replace(request, ext_fields={**fields, SIGNATURE: sign(secret, content)})


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def is_signed(request: RemotingCommand, secret: bytes) -> bool:
    """Whether the request's signature is that of *secret*.

    Clients from 4.9.4 on sign the mark of a look-up by unique key, older ones do not; RocketMQ's broker takes only the
    latter, here both are good.
    """
    fields = request.ext_fields or {}
    given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    contents = [signed_content(fields, request.body, SIGNATURE, UNIQUE_KEY_QUERY)]
    if UNIQUE_KEY_QUERY in fields:
        contents.append(signed_content(fields, request.body, SIGNATURE))
    return any(hmac.compare_digest(sign(secret, content).encode(), given) for content in contents)
