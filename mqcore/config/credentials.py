"""Keys to sign requests with, as RocketMQ 5.3 writes them into a setting."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

WANTED: Final = 'empty, or {"accessKey":"...","secretKey":"..."}'


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """An account's key, and its secret, which no repr shows."""

    access_key: str
    secret_key: str


def parse_credentials(text: str) -> Credentials | None:
    """Read the JSON of an access key and a secret key; None if there is nothing. Raises ValueError that shows neither.

    Source: RocketMQ 5.3.3 broker/out/BrokerOuterAPI.java, newAclRPCHook.
    """
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError(WANTED) from None
    if not isinstance(found, dict):
        raise ValueError(WANTED)
    access_key, secret_key = found.get("accessKey"), found.get("secretKey")
    if not (isinstance(access_key, str) and access_key and isinstance(secret_key, str) and secret_key):
        raise ValueError(WANTED)
    return Credentials(access_key, secret_key)
