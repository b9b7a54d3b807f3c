"""A script put to a broker and its name server, and to Apache's, and what differs between the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from mqcore.codes import RequestCode
from mqcore.protocol.command import RemotingCommand
from tests.rigs import RunningBroker
from tests.waiting import wait_until

from .differences import Difference, differing
from .identities import NOBODY, Identity
from .line import Both
from .scripts import REPLY, TOPIC, Request
from .seen import Seen, seen

SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
Pairs = list[tuple[Request, Seen, Seen]]


def answers_of(
    broker: RunningBroker, requests: Sequence[Request], identity: Identity = NOBODY, admin: Identity = NOBODY
) -> list[Seen]:
    """What *broker* and its name server answer to *identity*, one request after the other."""
    found = []
    stored = 0
    with closing(Both(broker.broker_address, broker.name_server, identity, admin)) as both:
        for request in requests:
            wanted = max(request.awaits, stored if request.is_settled else 0)
            if wanted:
                wait_until(lambda: both.has(wanted, TOPIC), describe=f"{wanted} messages")  # noqa: B023
            answer = both.ask(request)
            stored = max(stored, stored_by(request, answer))
            found.append(seen(answer))
    return found


def stored_by(request: Request, answer: RemotingCommand | None) -> int:
    """How many messages queue 0 of the topic has by what a send is answered; 0 of all else."""
    fields = (answer.ext_fields if answer is not None else None) or {}
    properties = request.fields.get("properties", request.fields.get("i", ""))
    is_there = (
        (request.code in SENDS or request.name == REPLY)
        and TOPIC in (request.fields.get("topic"), request.fields.get("b"))
        and fields.get("queueId") == "0"
        # Half messages and delayed ones are elsewhere.
        and not any(name in properties for name in ("TRAN_MSG", "DELAY", "TIMER"))
    )
    return int(fields.get("queueOffset", -1)) + 1 if is_there else 0


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
