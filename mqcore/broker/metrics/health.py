"""Whether the broker is ready, and whether it lives: what ``/readyz`` and ``/healthz`` say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from mqcore.broker.context import BrokerContext
from mqcore.broker.failover.coordinator import Phase
from mqcore.broker.figures import ProcessFigures
from mqcore.broker.metrics.broker_facts import Observed
from mqcore.codes import PermName
from mqcore.version import __version__

RUNNING: Final = "RUNNING"
SILENT_MS_MAX: Final = 60_000
"""A worker whose loop has not turned for so long hangs: all turn each few seconds, however little there is to do."""

FOLLOWING: Final = Phase.FOLLOWING.name.lower()
"""In this phase a broker of a failover group copies its master's log."""

FLAG_WORDS: Final = {
    "NOT_READABLE": "the store cannot be read",
    "NOT_WRITABLE": "the store cannot be written",
    "CONSUME_QUEUE_ERROR": "a consume queue cannot be written",
    "INDEX_ERROR": "the index cannot be written",
    "DISK_FULL": "the disk is full",
    "SYNC_FAILED": "a sync of the disk has failed",
    "SHUTTING_DOWN": "it is stopping",
    "BROKER_UNWRITABLE": "the broker takes no messages",
    "NO_NEXT_FILE": "there is no room for the next commit log file",
    "WORKER_MISSING": "a worker that the store needs does not stay up",
    "PULL_CLOSED": "a pull worker does not stay up",
    "SLAVE": "",
    "NOT_ENOUGH_REPLICAS": "not enough replicas are in sync",
}
"""A bit of StoreFlag in words; nothing: a broker may be ready with it."""


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """What is asked, why the answer is no (nothing: it is yes), and what else is told."""

    question: str
    reasons: tuple[str, ...]
    facts: dict[str, Any]

    @property
    def is_yes(self) -> bool:
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        return {self.question: self.is_yes, "reasons": list(self.reasons), **self.facts}


def readiness(observed: Observed | None) -> HealthVerdict:
    """Tell whether clients can work with the broker: a slave is ready when it does what slaves do."""
    if observed is None:
        return HealthVerdict(
            "ready", ("it is starting: the store is being opened and recovered",), {"version": __version__}
        )
    reasons = [] if observed.is_serving else ["it is starting, or stopping"]
    reasons += _store_reasons(observed)
    reasons += _worker_reasons(observed.figures.processes())
    reasons += _broker_reasons(observed.broker)
    return HealthVerdict("ready", tuple(reasons), _facts(observed.broker))


def liveness(observed: Observed | None, now_ms: int) -> HealthVerdict:
    """Tell whether a new start may help, from within the event loop, which so turns."""
    processes = [] if observed is None else observed.figures.processes()
    reasons = [f"the worker {process.name} does not stay up" for process in processes if not process.stays_up]
    reasons += [
        f"the worker {process.name} has not turned for {(now_ms - process.words['heartbeat']) // 1000} s"
        for process in processes
        if process.pid and 0 < process.words["heartbeat"] < now_ms - SILENT_MS_MAX
    ]
    return HealthVerdict("live", tuple(reasons), {"version": __version__})


def hangs(seconds: float) -> HealthVerdict:
    """The event loop has not answered for so long."""
    return HealthVerdict("live", (f"the event loop of the broker process has not turned for {seconds:g} s",), {})


def _store_reasons(observed: Observed) -> Iterable[str]:
    return [FLAG_WORDS[flag] for flag, is_set in observed.figures.flags().items() if is_set and FLAG_WORDS[flag]]


def _worker_reasons(processes: Iterable[ProcessFigures]) -> Iterable[str]:
    return [
        f"the worker {process.name} does not run"
        for process in processes
        if process.is_wanted and (not process.pid or process.state != RUNNING)
    ]


def _broker_reasons(broker: BrokerContext) -> Iterable[str]:
    settings = broker.settings.broker
    if not broker.registration.is_known:
        yield f"no name server has taken its registration: {', '.join(broker.registration.name_servers)}"
    if not PermName.is_readable(settings.broker_permission):
        yield f"brokerPermission={settings.broker_permission} lets nobody read"
    if not broker.is_slave and not PermName.is_writeable(settings.broker_permission):
        yield f"brokerPermission={settings.broker_permission} lets nobody write"
    if broker.group is not None:
        phase = broker.group.facts().phase
        if phase != FOLLOWING and not broker.group.is_master:
            yield f"it neither leads its group nor follows just now: {phase}"


def _facts(broker: BrokerContext) -> dict[str, Any]:
    settings = broker.settings.broker
    facts = {
        "version": __version__,
        "cluster": settings.broker_cluster_name,
        "broker": settings.broker_name,
        "brokerId": broker.registration.broker_id,
        "address": str(broker.address),
        "role": "slave" if broker.is_slave else "master",
    }
    if broker.group is None:
        return facts
    group = broker.group.facts()
    return facts | {"epoch": broker.group.epoch, "member": broker.group.member, "phase": group.phase, "why": group.why}
