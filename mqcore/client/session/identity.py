"""Who a client is to brokers and to the other members of its groups."""

from __future__ import annotations

import itertools
import os
import time

from mqcore.client.settings.classes import ClientSettings
from mqcore.local_address import local_address

DEFAULT_INSTANCE = "DEFAULT"

_serial = itertools.count()


def unique_instance_name() -> str:
    """Return a name that no other client of this machine has: process id, nanoseconds, a count in the process."""
    return f"{os.getpid()}#{time.time_ns() + next(_serial)}"


def client_id(settings: ClientSettings, *, stable: bool = False) -> str:
    """Return ``ip@instance`` or ``ip@instance@unit``. Source: RocketMQ ClientConfig.java, buildMQClientId.

    Two living clients with one id take the same queues of a group, so an id without a chosen instance name is new each
    time. *stable* gives the id that a broadcasting Java consumer has across restarts: it names its offset folder.
    """
    default = DEFAULT_INSTANCE if stable else unique_instance_name()
    parts = [settings.client_ip or local_address(), settings.instance_name or default]
    if settings.unit_name:
        parts.append(settings.unit_name)
    return "@".join(parts)
