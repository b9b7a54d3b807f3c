"""A script put to a broker and its name server, and to Apache's, and what differs between the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from tests.rigs import RunningBroker
from tests.waiting import wait_until

from .differences import Difference, differing
from .identities import NOBODY, Identity
from .line import Both
from .scripts import TOPIC, Request
from .seen import Seen, seen

Pairs = list[tuple[Request, Seen, Seen]]


def answers_of(
    broker: RunningBroker, requests: Sequence[Request], identity: Identity = NOBODY, admin: Identity = NOBODY
) -> list[Seen]:
    """What *broker* and its name server answer to *identity*, one request after the other."""
    found = []
    with closing(Both(broker.broker_address, broker.name_server, identity, admin)) as both:
        for request in requests:
            if request.awaits:
                wait_until(lambda: both.has(request.awaits, TOPIC), describe=f"{request.awaits} messages")  # noqa: B023
            found.append(seen(both.ask(request)))
    return found


def pairs_of(
    ours: RunningBroker,
    apache: RunningBroker,
    requests: Sequence[Request],
    identity: Identity = NOBODY,
    admin: Identity = NOBODY,
) -> Pairs:
    """Each request with our answer and Apache's, to *identity*. See Both."""
    with ThreadPoolExecutor() as pool:
        here, there = pool.map(lambda broker: answers_of(broker, requests, identity, admin), (ours, apache))
    return list(zip(requests, here, there, strict=True))


def told(request: Request, here: Seen, there: Seen) -> str:
    return f"{request.code} {request.name} ({request.to})\n  ours    {here}\n  Apache  {there}"


def check(pairs: Pairs, rows: Iterable[Difference]) -> None:
    """Fail over what differs without a reason in *rows*, and over a row that is not met any more."""
    unexplained, met = [], set()
    for request, here, there in pairs:
        reasons = list(_reasons(request, here, there, rows))
        met.update(reasons)
        if differing(here, there) and not reasons:
            unexplained.append(f"{sorted(differing(here, there))} {told(request, here, there)}")
    assert not unexplained, f"{len(unexplained)} of {len(pairs)}:\n" + "\n".join(unexplained)
    over = [f"{row.code} {row.named}" for row in rows if row not in met]
    assert over == [], f"what no longer differs: {over}"


def _reasons(request: Request, here: Seen, there: Seen, rows: Iterable[Difference]) -> Iterator[Difference]:
    parts = differing(here, there)
    return (row for row in rows if parts and row.allows(request, parts))
