"""What ``mqcore doctor`` looks at in a cluster, as it is seen from here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mqcore.address import parse_address
from mqcore.admin.findings import Finding, Health
from mqcore.client.asynchronous import Client
from mqcore.errors import MQError
from mqcore.protocol.bodies import ClusterInfo
from mqcore.store.disk import CLEAN_FORCIBLY_RATIO, WARNING_LEVEL_RATIO
from mqcore.transport.exposure import is_loopback

BEHIND_MAX: Final = 64 << 20
MASTER_ID: Final = 0


async def cluster_findings(name_servers: Iterable[str]) -> list[Finding]:
    """Ask every name server what it knows, and every broker how it is."""
    findings: list[Finding] = []
    known: dict[str, ClusterInfo] = {}
    for address in name_servers:
        try:
            async with Client(address, namespace="") as mq:
                known[address] = await mq.admin.cluster_info()
        except MQError as error:
            mend = error.hint or "start it there, or leave it out of -n and namesrvAddr"
            findings.append(Finding("name server", address, Health.ERROR, str(error), mend))
        else:
            said = f"knows {len(known[address].broker_addr_table)} broker names"
            findings.append(Finding("name server", address, Health.OK, said))
    findings += disagreements(known)
    places = sorted(
        (name, number, address, server)
        for server, info in known.items()
        for name, data in info.broker_addr_table.items()
        for number, address in data.broker_addrs.items()
    )
    seen = {(name, number, address): server for name, number, address, server in places}
    if known and not seen:
        mend = "start one with -n naming these name servers; one that runs registers within 30 s"
        findings.append(Finding("brokers", ", ".join(known), Health.ERROR, "none is registered", mend))
    runtimes: dict[str, Mapping[str, str]] = {}
    for (name, number, address), server in seen.items():
        try:
            async with Client(server, namespace="") as mq:
                runtimes[address] = await mq.admin.broker_runtime(address)
        except MQError as error:
            findings.append(Finding("broker", f"{name} {number}", Health.ERROR, str(error), error.hint))
            continue
        findings += [reachable(name, number, address, server), *condition(name, number, runtimes[address])]
    findings += masters(seen)
    findings += versions(runtimes)
    return findings


def disagreements(known: Mapping[str, ClusterInfo]) -> Iterator[Finding]:
    """Name servers do not tell one another: who has not heard of a broker sends nobody to it."""
    brokers = {
        server: {
            (name, number, address)
            for name, data in info.broker_addr_table.items()
            for number, address in data.broker_addrs.items()
        }
        for server, info in known.items()
    }
    everything = set().union(*brokers.values())
    for server, have in brokers.items():
        for name, number, address in sorted(everything - have):
            mend = "give every broker all name servers (namesrvAddr), and look whether it reaches this one"
            said = f"does not know {name} {number} at {address}, which others do"
            yield Finding("name servers agree", server, Health.ERROR, said, mend)


def reachable(name: str, number: int, address: str, server: str) -> Finding:
    """Judge the address of a broker that has answered there."""
    if is_loopback(parse_address(address).host) and not is_loopback(parse_address(server).host):
        mend = "set brokerIP1 to an address that clients reach"
        return Finding("broker", f"{name} {number}", Health.ERROR, f"registered {address}, which is here alone", mend)
    return Finding("broker", f"{name} {number}", Health.OK, f"answers at {address}")


def condition(name: str, number: int, runtime: Mapping[str, str]) -> Iterator[Finding]:
    """Judge what a broker, ours or Apache's, says of itself."""
    who = f"{name} {number}"
    used = float(runtime.get("commitLogDiskRatio", "-1"))
    if used > CLEAN_FORCIBLY_RATIO:
        state = Health.ERROR if used > WARNING_LEVEL_RATIO else Health.WARNING
        mend = f"make room or lower fileReservedTime: it refuses sends above {WARNING_LEVEL_RATIO:.0%}"
        yield Finding("disk of the log", who, state, f"{used:.0%} in use", mend)
    behind = int(runtime.get("dispatchBehindBytes", "0"))
    if behind > BEHIND_MAX:
        mend = "look at its disk and processors: what is not dispatched is not consumed"
        yield Finding("dispatch", who, Health.WARNING, f"{behind >> 20} MiB behind the log", mend)
    for group in filter(None, runtime.get("subscriptionConflictGroups", "").split(",")):
        mend = f"let all its members subscribe to the same: mqcore group members {group}"
        said = f"its members at {name} subscribe to different things, and messages are passed over"
        yield Finding("subscriptions", group, Health.ERROR, said, mend)


def masters(places: Iterable[tuple[str, int, str]]) -> Iterator[Finding]:
    """A broker name without a master takes no messages."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for name, number, _ in places:
        numbers[name].add(number)
    for name in sorted(name for name, found in numbers.items() if MASTER_ID not in found):
        mend = "start its master; in a failover group see mqcore ha status"
        yield Finding("master", name, Health.ERROR, "none is registered: nothing can be sent to it", mend)


def versions(runtimes: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Brokers of several versions are meant for the time of an upgrade."""
    counts = Counter(runtime.get("brokerVersionDesc", "unknown") for runtime in runtimes.values())
    if len(counts) > 1:
        said = ", ".join(f"{count} with {version}" for version, count in counts.most_common())
        yield Finding("versions", "brokers", Health.WARNING, said, "finish the upgrade")
