"""What mqcore doctor makes of what it sees."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from mqcore.admin import cluster_checks, machine_checks
from mqcore.admin.findings import Finding, Health
from mqcore.protocol.bodies import BrokerData, ClusterInfo
from mqcore.store.disk import DiskSpace

GIB = 1 << 30
HERE = Path("/store")


@pytest.mark.parametrize(
    ("finding", "state", "said"),
    [
        (machine_checks.memory(GIB, GIB), Health.OK, "1024 MiB"),
        (machine_checks.memory(GIB >> 2, GIB), Health.WARNING, "256 MiB, of 1024 MiB of the machine"),
        (machine_checks.open_files(resource.RLIM_INFINITY), Health.OK, "no limit"),
        (machine_checks.open_files(65_536), Health.OK, "65536"),
        (machine_checks.open_files(1024), Health.WARNING, "1024"),
        (machine_checks.map_count(None), Health.OK, "unknown"),
        (machine_checks.map_count(65_529), Health.WARNING, "65529"),
        (machine_checks.swappiness(60, is_swapping=False), Health.OK, "60, without swap"),
        (machine_checks.swappiness(60, is_swapping=True), Health.WARNING, "60"),
        (machine_checks.swappiness(10, is_swapping=True), Health.OK, "10"),
        (machine_checks.clock(0), Health.OK, "synchronized"),
        (machine_checks.clock(5), Health.WARNING, "not synchronized"),
        (machine_checks.space(HERE, DiskSpace("/", 0.85, GIB, GIB // 4)), Health.OK, "256 of 1024 MiB free"),
        (machine_checks.space(HERE, DiskSpace("/", 0.86, GIB, GIB // 8)), Health.WARNING, "128 of 1024 MiB free"),
        (machine_checks.space(HERE, DiskSpace("/", 0.91, GIB, GIB // 16)), Health.ERROR, "64 of 1024 MiB free"),
        (machine_checks.syncs(HERE, [1, 2, 90]), Health.OK, "a sync takes 2.00 ms, at most 90.0 ms of 3"),
        (machine_checks.syncs(HERE, [21, 22, 23]), Health.WARNING, "a sync takes 22.00 ms, at most 23.0 ms of 3"),
    ],
)
def test_a_machine_is_judged(finding: Finding, state: Health, said: str) -> None:
    assert (finding.state, finding.found) == (state, said)
    assert bool(finding.mend) is (state is not Health.OK), "what is not well comes with what to do"


def test_this_machine_can_be_looked_at(tmp_path: Path) -> None:
    assert len({finding.check for finding in machine_checks.machine_findings()}) == 6
    place = tmp_path / "not" / "there"
    assert [finding.check for finding in machine_checks.store_findings(place)] == ["disk space", "disk speed"]


def test_a_place_that_may_not_be_written_to_is_told_with_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    (finding,) = machine_checks.store_findings(file / "store")
    assert finding.state is Health.ERROR
    assert f"{file} belongs to {file.owner()}:" in finding.found


@pytest.mark.parametrize(
    ("text", "found"), [("[always] madvise never", "always"), ("always madvise [never]", "never"), ("", "unknown")]
)
def test_huge_pages_are_read(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "enabled"
    path.write_text(text)
    assert machine_checks.huge_pages(path).found == found


def cluster(**brokers: dict[int, str]) -> ClusterInfo:
    table = {name: BrokerData("C", name, addresses) for name, addresses in brokers.items()}
    return ClusterInfo(table, {"C": list(brokers)})


def test_name_servers_that_disagree_are_told_apart() -> None:
    known = {"n1:9876": cluster(a={0: "h:1", 1: "h:2"}), "n2:9876": cluster(a={0: "h:1"}, b={0: "h:3"})}
    assert [(finding.subject, finding.found) for finding in cluster_checks.disagreements(known)] == [
        ("n1:9876", "does not know b 0 at h:3, which others do"),
        ("n2:9876", "does not know a 1 at h:2, which others do"),
    ]
    assert list(cluster_checks.disagreements({})) == []


def test_an_address_that_is_here_alone_is_wrong_where_the_name_server_is_elsewhere() -> None:
    assert cluster_checks.reachable("a", 0, "127.0.0.1:10911", "10.0.0.1:9876").state is Health.ERROR
    assert cluster_checks.reachable("a", 0, "127.0.0.1:10911", "127.0.0.1:9876").state is Health.OK
    assert cluster_checks.reachable("a", 0, "10.0.0.1:10911", "10.0.0.1:9876").state is Health.OK


def test_the_condition_of_a_broker_is_judged_by_what_it_says() -> None:
    well = {"commitLogDiskRatio": "0.5", "dispatchBehindBytes": "10"}
    assert list(cluster_checks.condition("a", 0, well)) == []
    assert list(cluster_checks.condition("a", 0, {})) == [], "an older release does not say all of it"
    ill = {"commitLogDiskRatio": "0.91", "dispatchBehindBytes": str(1 << 30), "subscriptionConflictGroups": "G,H"}
    assert [(finding.check, finding.subject) for finding in cluster_checks.condition("a", 0, ill)] == [
        ("disk of the log", "a 0"), ("dispatch", "a 0"), ("subscriptions", "G"), ("subscriptions", "H"),
    ]  # fmt: skip


def test_a_name_without_a_master_and_two_versions_are_found() -> None:
    places = [("a", 0, "h:1"), ("a", 1, "h:2"), ("b", 1, "h:3")]
    assert [finding.subject for finding in cluster_checks.masters(places)] == ["b"]
    runtimes = {"h:1": {"brokerVersionDesc": "V4_9_8"}, "h:2": {"brokerVersionDesc": "V4_9_8"}, "h:3": {}}
    (finding,) = cluster_checks.versions(runtimes)
    assert finding.found == "2 with V4_9_8, 1 with unknown"
    assert list(cluster_checks.versions({"h:1": {}})) == []
