"""A pull request as it was read, and what its checks found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PullHeader:
    """A pull request, read. ``suspend_timeout_ms`` is the client's wish, ``principal`` who asks; 0 is nobody known.

    Two pulls may get different bindings only if they differ in a field that is part of ``BindingKey`` in bindings.pxd.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_ms: int
    subscription: str | None
    sub_version: int
    expression_type: str | None
    principal: int = 0


@dataclass(frozen=True, slots=True)
class PullBinding:
    """The answer of every pull check, which stays true until the epoch of its topic and group changes.

    It is about all queues of the topic, from 0 up to ``queue_count``.

    ``match_all`` or ``tag_codes`` decide at queue level. ``suspend_limit_ms`` None means the client's own time; a
    number is how long a pull may be held whatever the client asks (long polling is off). The client's own time counts
    up to ``suspend_max_ms``. ``slow_broker_id`` and ``broker_id`` are what to suggest when the group reads far behind
    and when not; both are 0 unless slaveReadEnable is on. A pull with the SUBSCRIPTION flag gets a binding for its own
    expression only: ``expression`` is that text. One without is to be asked about again when its subscription version
    is above ``sub_version``.

    ``program`` is the filter that looks into the records that the queue lets through; empty for none. Of messages from
    the physical offset ``bitmap_from`` on (-1 = of none) the ext units' bitmaps of ``bitmap_bits`` bits tell, too: one
    without all of ``bits`` is not wanted.
    """

    group: str
    topic: str
    queue_count: int
    match_all: bool
    tag_codes: tuple[int, ...]
    suspend_limit_ms: int | None
    suspend_max_ms: int
    broker_id: int
    slow_broker_id: int
    sub_version: int
    expression: str | None = None
    program: bytes = b""
    bits: tuple[int, ...] = ()
    bitmap_bits: int = 0
    bitmap_from: int = -1
