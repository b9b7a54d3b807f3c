"""What is shipped for Grafana and Prometheus: it asks for metrics that there are, and finds series under load."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqcore.broker.metrics.dashboard import DASHBOARD, Panel, panels, text
from mqcore.broker.metrics.rows import ROWS, SeriesKind
from mqcore.client import Client, Message
from tests.rigs import MqcoreBroker, make_topic, prometheus
from tests.rigs.ports import free_port
from tests.rigs.prometheus import Prometheus, promtool
from tests.rows import walked
from tests.waiting import wait_until

DEADLINE_S = 90.0
MONITORING = DASHBOARD.parent
MISSING = prometheus.missing_tools()
PROMETHEUS = pytest.mark.skipif(bool(MISSING), reason=f"Prometheus cannot run here: {MISSING}")
HISTOGRAMS = {row.name for row in ROWS if row.kind is SeriesKind.HISTOGRAM}
NAMES = {row.name for row in ROWS} | {f"{name}_{of}" for name in HISTOGRAMS for of in ("bucket", "count", "sum")}
OTHER_NAMES = {"up", "mqcore-brokers"}
NAME = re.compile(r"\b(?:mqcore|rocketmq)_\w+")
VARIABLES = {"$cluster": ".*", "$node": ".*", "$__rate_interval": "1m"}

SILENT = {
    "Given up": "nothing was given up",
    "Slaves behind": "it has no slave",
    "Slaves behind in time": "the same",
    "Epoch": "it is in no failover group",
}
"""Panels without a series here."""


def asks(panel: Panel) -> list[str]:
    """The queries of *panel*, with what Grafana puts into them."""
    queries = [query.text for query in panel.queries]
    for name, value in VARIABLES.items():
        queries = [query.replace(name, value) for query in queries]
    return queries


def test_the_dashboard_is_that_of_the_table() -> None:
    assert DASHBOARD.read_text() == text(), "python -m mqcore.broker.metrics writes it"


@walked("panel", panels())
def test_a_panel_asks_for_metrics_that_there_are(panel: Panel) -> None:
    assert panel.help
    for query in panel.queries:
        names = NAME.findall(query.text)
        assert names
        assert set(names) <= NAMES
        labels = {label for row in ROWS if row.name in names or f"{row.name}_bucket" in names for label in row.labels}
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= labels | {"instance"}, query


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_alerts_ask_for_metrics_that_there_are() -> None:
    for name in ("alerts.yml", "alerts_test.yml"):
        names = set(NAME.findall((MONITORING / name).read_text()))
        assert names
        assert names <= NAMES, name


@PROMETHEUS
def test_alerts_fire_for_what_they_are_for() -> None:
    assert promtool("check", "rules", MONITORING / "alerts.yml").returncode == 0
    played = promtool("test", "rules", MONITORING / "alerts_test.yml")
    assert played.returncode == 0, played.stdout + played.stderr


@PROMETHEUS
def test_an_alert_that_fires_for_nothing_is_found(tmp_path: Path) -> None:
    rules = (MONITORING / "alerts.yml").read_text()
    assert "mqcore_ready == 0" in rules
    (tmp_path / "alerts.yml").write_text(rules.replace("mqcore_ready == 0", "mqcore_ready == 1"))
    (tmp_path / "alerts_test.yml").write_text((MONITORING / "alerts_test.yml").read_text())
    assert promtool("test", "rules", tmp_path / "alerts_test.yml").returncode == 1


@PROMETHEUS
def test_each_panel_finds_series_while_a_load_runs(tmp_path: Path) -> None:
    port = free_port()
    with (
        MqcoreBroker(tmp_path / "store", {"metricsPort": str(port)}) as broker,
        load(broker),
        Prometheus(tmp_path, port) as server,
    ):
        wanted = {query: panel.title for panel in panels() if panel.title not in SILENT for query in asks(panel)}
        missing: list[str] = []

        def have_all() -> bool:
            missing[:] = [query for query in wanted if not server.find(query)]
            return not missing

        try:
            wait_until(have_all, DEADLINE_S, "each panel has a series")
        except AssertionError as error:
            raise AssertionError(f"nothing is found by {missing}") from error
        names = {result["metric"]["__name__"] for result in server.find('{__name__=~"(rocketmq|mqcore)_.*"}')}
        assert {row.name for row in ROWS if row.kind is SeriesKind.COUNTER} & names
        assert names <= NAMES


@contextmanager
def load(broker: MqcoreBroker) -> Iterator[None]:
    """Messages are sent and read within the block."""
    topic = make_topic(broker, "Loaded")
    stop = threading.Event()

    def send() -> None:
        with Client(broker.name_server) as mq, mq.producer("loader") as producer:
            while not stop.wait(0.05):
                for number in range(10):
                    producer.send(Message(topic, f"{number}".encode()))

    with Client(broker.name_server) as mq:
        handler = mq.consumer("readers", topic, handler=lambda message: None, from_where="earliest")
        with handler:
            sender = threading.Thread(target=send)
            sender.start()
            try:
                yield
            finally:
                stop.set()
                sender.join()
