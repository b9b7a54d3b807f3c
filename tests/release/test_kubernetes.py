"""docs/deploy/kubernetes: Kubernetes takes it, and what is said there of the broker is true of the broker."""

from __future__ import annotations

import http.client
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mqcore.admin.systemd_unit import STOP_S
from mqcore.config import BrokerRole, Program, Settings, find, load
from mqcore.java_properties import parse_properties
from tests.release import containerfile
from tests.release.source_tree import ROOT
from tests.rigs import etcd
from tests.rigs.ports import free_broker_ports, free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

PLACE = ROOT / "docs" / "deploy" / "kubernetes"
PAGES = ("namesrv.yaml", "broker.yaml")
DOCUMENTS: list[dict[str, Any]] = [
    document for page in PAGES for document in yaml.safe_load_all((PLACE / page).read_text())
]
OLDEST = 28
"""1.28 is the first that gives pods their index as a label."""

DEADLINE_S = 60.0
POD = {"POD_IP": "10.1.2.3", "POD_INDEX": "1"}


def the(kind: str, name: str) -> dict[str, Any]:
    (found,) = (d for d in DOCUMENTS if (d["kind"], d["metadata"]["name"]) == (kind, name))
    return found


BROKERS, NAMESRVS = the("StatefulSet", "mqcore-broker-a"), the("StatefulSet", "mqcore-namesrv")


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(found)


def arguments(workload: dict[str, Any], pod: dict[str, str] = POD) -> list[str]:
    """The container's arguments behind the module, with what the kubelet puts in."""
    words = container(workload)["args"]
    for name, value in pod.items():
        words = [word.replace(f"$({name})", value) for word in words]
    assert not [word for word in words if "$(" in word], "a variable that nobody sets"
    return list(words[1:])


def assigned(words: list[str]) -> dict[str, str]:
    pairs = (word.removeprefix("--set=").split("=", 1) for word in words if word.startswith("--set="))
    return dict(pairs)


def broker_file() -> str:
    return str(the("ConfigMap", "mqcore-broker-a")["data"]["broker.conf"])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Those that the second pod of the group has."""
    path = tmp_path / "broker.conf"
    path.write_text(broker_file())
    return load(Program.BROKER, files=[path], overrides=assigned(arguments(BROKERS)), environment={})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: f"{d['kind']} {d['metadata']['name']}")
def test_kubernetes_takes_it_in_each_of_its_versions(document: dict[str, Any]) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="not installed: kubernetes-validate (.[release])")
    versions = range(OLDEST, int(schemas.latest_version().split(".")[1]) + 1)
    assert len(versions) > 5
    for version in versions:
        schemas.validate(document, f"1.{version}", strict=True)


def test_each_setting_is_one_and_has_an_effect(settings: Settings) -> None:
    keys = [*parse_properties(broker_file()), *assigned(arguments(BROKERS)), *assigned(arguments(NAMESRVS))]
    rows = [find(key) for key in keys]
    assert all(row is not None and row.used and row.key == key for row, key in zip(rows, keys, strict=True))
    assert settings.warnings == ()
    load(Program.NAMESRV, overrides=assigned(arguments(NAMESRVS)), environment={})


def test_ports_probes_and_paths_are_those_of_the_settings(settings: Settings) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(BROKERS)["ports"]}
    assert ports == {
        "remoting": settings.server.listen_port,
        "fast": settings.fast_listen_port,
        "replicas": settings.ha_listen_port,
        "metrics": settings.mqcore.metrics_port,
    }
    (service_port,) = the("Service", "mqcore-namesrv")["spec"]["ports"]
    assert service_port["port"] == container(NAMESRVS)["ports"][0]["containerPort"] == 9876
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container(BROKERS)[probe]["httpGet"]["port"] == "metrics"
    assert settings.mqcore.metrics_host == "0.0.0.0", "the kubelet asks from outside"
    assert settings.broker.broker_ip1 == settings.broker.broker_ip2 == POD["POD_IP"]
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in container(BROKERS)["volumeMounts"]}
    assert settings.store.root_dir.is_relative_to(mounts["store"])
    assert f"--configFile={mounts['settings']}/broker.conf" in arguments(BROKERS)
    (state,) = container(NAMESRVS)["volumeMounts"]
    assert f"--dir={state['mountPath']}" in arguments(NAMESRVS)


def test_the_group_is_one_and_finds_its_name_servers(settings: Settings) -> None:
    assert settings.failover.is_group
    assert settings.store.broker_role is BrokerRole.SYNC_MASTER
    assert settings.failover.min_in_sync_replicas == 2
    assert BROKERS["spec"]["replicas"] == 3
    assert the("PodDisruptionBudget", "mqcore-broker-a")["spec"]["maxUnavailable"] == 1
    name = NAMESRVS["metadata"]["name"]
    hosts = [f"{name}-{index}.{NAMESRVS['spec']['serviceName']}:9876" for index in range(NAMESRVS["spec"]["replicas"])]
    assert [str(address) for address in settings.namesrv_addresses] == hosts


@pytest.mark.parametrize("workload", [BROKERS, NAMESRVS], ids=["brokers", "name servers"])
def test_selectors_find_the_pods_and_the_image_runs_so(workload: dict[str, Any]) -> None:
    name, labels = workload["metadata"]["name"], workload["spec"]["template"]["metadata"]["labels"]
    spec = workload["spec"]["template"]["spec"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    assert the("Service", name)["spec"]["selector"] == labels
    assert the("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"] == labels
    (away,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert away["labelSelector"]["matchLabels"] == labels
    assert f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}" == containerfile.words_of(
        "USER"
    )
    assert container(workload)["args"][0] in ("mqcore.broker", "mqcore.namesrv")
    assert container(workload)["securityContext"]["readOnlyRootFilesystem"]
    volumes = {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    volumes |= {volume["name"] for volume in spec.get("volumes", ())}
    assert {mount["name"] for mount in container(workload)["volumeMounts"]} == volumes


def test_a_broker_has_the_time_that_its_stop_may_take() -> None:
    assert BROKERS["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= STOP_S


@pytest.mark.skipif(bool(etcd.missing_tools()), reason=f"etcd cannot run here: {etcd.missing_tools()}")
def test_the_first_pod_s_command_starts_a_broker_that_is_ready(tmp_path: Path) -> None:
    """With what its cluster would give it in the place of names: etcd, addresses, a volume; alone, so one is enough."""
    config, metrics_port = tmp_path / "broker.conf", free_port()
    config.write_text(broker_file())
    here = {
        "storePathRootDir": tmp_path / "store",
        "listenPort": free_broker_ports().listen, "metricsPort": metrics_port, "metricsHost": "127.0.0.1",
        "bindAddress": "127.0.0.1", "minInSyncReplicas": 1, "mappedFileSizeCommitLog": 1 << 20,
    }  # fmt: skip
    words = [
        word.replace("/etc/mqcore/broker.conf", str(config))
        for word in arguments(BROKERS, {"POD_IP": "127.0.0.1", "POD_INDEX": "0"})
    ]

    def get(path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", metrics_port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    name_server_port = str(free_port())
    name_server = [
        sys.executable,
        "-m",
        *container(NAMESRVS)["args"],
        f"--dir={tmp_path}",
        f"--port={name_server_port}",
    ]
    here["namesrvAddr"] = f"127.0.0.1:{name_server_port}"
    with etcd.Etcd(tmp_path / "etcd") as keeper, Child(name_server, log=tmp_path / "namesrv.log"):
        here["failoverEtcd"] = keeper.client
        changed = [f"--set={key}={value}" for key, value in here.items()]
        with Child([sys.executable, "-m", "mqcore.broker", *words, *changed], log=tmp_path / "broker.log") as child:
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = container(BROKERS)[probe]["httpGet"]["path"]
                wait_until(lambda path=path: not child.is_alive or get(path) == 200, DEADLINE_S, f"{path} is well")
                assert child.is_alive, child.error("has ended")
            assert child.stop() == 0
