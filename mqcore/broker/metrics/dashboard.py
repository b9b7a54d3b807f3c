"""The Grafana dashboard ``docs/monitoring/grafana.json``, from a table of panels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DASHBOARD: Final = Path(__file__).resolve().parents[3] / "docs" / "monitoring" / "grafana.json"
WIDTH: Final = 24
HEIGHT: Final = 8
SCHEMA_VERSION: Final = 39
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
NODES: Final = 'cluster=~"$cluster", node_id=~"$node"'
"""In every query: the brokers that are chosen above the panels."""

SPAN: Final = "$__rate_interval"
SENDS: Final = ', request_code="send_message_v2"'
PULLS: Final = ', request_code="pull_message"'
SHARES: Final = (0.5, 0.99, 0.999)
IOWAIT: Final = ', mode="iowait"'
INVOLUNTARY: Final = ', switch="involuntary"'


@dataclass(frozen=True, slots=True)
class Query:
    """A line of a panel, or one for each series. *legend* is Grafana's, with labels in {{ }}."""

    text: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """*unit* is one of Grafana's names; *help* is what stands behind the i in the corner."""

    title: str
    unit: str
    help: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = HEIGHT


@dataclass(frozen=True, slots=True)
class Section:
    """A row of panels with a heading."""

    title: str
    panels: tuple[Panel, ...]


def _rate(name: str, more: str = "") -> str:
    return f"rate({name}{{{NODES}{more}}}[{SPAN}])"


def _sum(name: str, *labels: str) -> str:
    return f"sum by ({', '.join(labels)}) ({_rate(name)})"


def _quantile(share: float, of: str) -> str:
    rate = _rate("rocketmq_rpc_latency_bucket", of)
    return f"histogram_quantile({share}, sum by (node_id, is_long_polling, le) ({rate}))"


def _stat(title: str, unit: str, text: str, query: str, legend: str = "{{node_id}}") -> Panel:
    return Panel(title, unit, text, (Query(query, legend),), "stat", 4, 4)


SECTIONS: Final = (
    Section("At a glance", (
        _stat("Ready", "bool_yes_no", "Whether /readyz says so", f"mqcore_ready{{{NODES}}}"),
        _stat("Master", "bool_yes_no", "Whether it takes messages", f"mqcore_is_master{{{NODES}}}"),
        _stat("In", "cps", "Messages stored a second", f"sum({_rate('mqcore_put_messages_total')})", "in"),
        _stat("Out", "cps", "Messages given out a second", f"sum({_rate('mqcore_get_messages_total')})", "out"),
        _stat("Greatest lag", "ms", "Age of the oldest message that some group has not consumed",
              f"max(rocketmq_consumer_lag_latency{{{NODES}}})", "lag"),
        _stat("Disk", "percentunit", "Used share of the disk of the store", f"mqcore_disk_used_ratio{{{NODES}}}"),
    )),
    Section("What holds it back?", (
        Panel("Processors: busiest process", "percentunit",
              "Share of one processor that each process uses. A send or pull worker near 100 % is bound by its "
              "processor: have more of them (sendWorkerNums, pullWorkerNums)",
              (Query(_sum("mqcore_worker_cpu_seconds_total", "node_id", "worker"), "{{node_id}} {{worker}}"),)),
        Panel("Too many who want processors: waits", "percentunit",
              "Share of its time that a process could run and had no processor. Where it is high and others' load "
              "is, the machine is over-scheduled",
              (Query(_sum("mqcore_worker_runqueue_wait_seconds_total", "node_id", "worker"),
                     "{{node_id}} {{worker}}"),)),
        Panel("Disks: time in which tasks waited for them", "percentunit",
              "Pressure of io, and iowait as a share of all processors: high with idle processors means that the disk "
              "is what is waited for",
              (Query(_rate("mqcore_host_pressure_seconds_total", ', resource="io", extent="some"'),
                     "{{node_id}} pressure"),
               Query(f"{_rate('mqcore_host_cpu_seconds_total', IOWAIT)} "
                     f"/ on (cluster, node_id) group_left () mqcore_host_processors{{{NODES}}}",
                     "{{node_id}} iowait"))),
        Panel("Load by processor", "none", "Above 1 more want to run, or wait for a disk, than there are processors",
              (Query(f"mqcore_host_load1{{{NODES}}} / mqcore_host_processors{{{NODES}}}", "{{node_id}}"),)),
        Panel("Processors lost", "cps", "Involuntary switches of context: others took the processor away",
              (Query(f"sum by (node_id, worker) ("
                     f"{_rate('mqcore_worker_context_switches_total', INVOLUNTARY)}"
                     ")", "{{node_id}} {{worker}}"),)),
        Panel("Memory", "bytes", "Resident memory; pages of mapped files that others have, too, included",
              (Query(f"mqcore_worker_resident_bytes{{{NODES}}}", "{{node_id}} {{worker}}"),)),
    )),
    Section("Messages", (
        Panel("In, by topic", "cps", "Messages stored a second; the ten busiest topics",
              (Query(f"topk(10, {_sum('rocketmq_messages_in_total', 'topic')})", "{{topic}}"),)),
        Panel("Out, by group", "cps", "Messages given out a second; the ten busiest groups",
              (Query(f"topk(10, {_sum('rocketmq_messages_out_total', 'consumer_group', 'topic')})",
                     "{{consumer_group}} {{topic}}"),)),
        Panel("Bytes", "Bps", "Bytes stored and given out a second",
              (Query(f"sum({_rate('mqcore_put_bytes_total')})", "in"),
               Query(f"sum({_rate('mqcore_get_bytes_total')})", "out"))),
        Panel("Time of a put", "s", "Below this time lie so many of the puts; with SYNC_FLUSH the disk is in it",
              tuple(Query(f"histogram_quantile({share}, {_sum('mqcore_put_latency_seconds_bucket', 'node_id', 'le')})",
                          f"{{{{node_id}}}} {share:.1%}") for share in SHARES)),
        Panel("Time of a send", "ms", "Below this time lie so many of the answers to sends, from the moment that the "
              "broker could read them; flush and slaves that are waited for are in it, and sends that waited in vain",
              tuple(Query(_quantile(share, SENDS), f"{{{{node_id}}}} {share:.1%}") for share in SHARES)),
        Panel("Time of a pull", "ms", "The same of pulls that found messages, without the time that they were held",
              tuple(Query(_quantile(share, PULLS), f"{{{{node_id}}}} {share:.1%}, held: {{{{is_long_polling}}}}")
                    for share in SHARES)),
        Panel("Pulls", "cps", "Pulls a second that found messages, and that found nothing",
              (Query(f"sum({_rate('mqcore_pulls_found_total')})", "found"),
               Query(f"sum({_rate('mqcore_pulls_missed_total')})", "found nothing"))),
        Panel("Connections", "none", "Clients that are connected",
              (Query(f"sum by (node_id) (mqcore_worker_connections{{{NODES}}})", "{{node_id}}"),)),
    )),
    Section("Groups", (
        Panel("Lag in messages", "none", "Messages behind committed offsets; the ten groups with the most",
              (Query(f"topk(10, sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{{{NODES}}}))",
                     "{{consumer_group}} {{topic}}"),)),
        Panel("Lag in time", "ms", "Age of the oldest message that is not consumed; the ten groups with the oldest",
              (Query(f"topk(10, max by (consumer_group, topic) (rocketmq_consumer_lag_latency{{{NODES}}}))",
                     "{{consumer_group}} {{topic}}"),)),
        Panel("In flight", "none", "Messages given out whose offsets are not committed",
              (Query(f"topk(10, sum by (consumer_group, topic) (rocketmq_consumer_inflight_messages{{{NODES}}}))",
                     "{{consumer_group}} {{topic}}"),)),
        Panel("Members", "none", "Connected members of groups",
              (Query(f"sum by (consumer_group) (rocketmq_consumer_connections{{{NODES}}})", "{{consumer_group}}"),)),
        Panel("Given up", "cps", "Messages that went to dead letter topics, a second",
              (Query(_sum("rocketmq_send_to_dlq_messages_total", "consumer_group"), "{{consumer_group}}"),)),
        Panel("Groups in conflict", "none", "Groups whose members subscribe to different things",
              (Query(f"mqcore_subscription_conflict_groups{{{NODES}}}", "{{node_id}}"),)),
    )),
    Section("Store", (
        Panel("Behind the end of the log", "bytes", "Bytes that are not on disk, and not in consume queues",
              (Query(f"rocketmq_storage_flush_behind_bytes{{{NODES}}}", "{{node_id}} flush"),
               Query(f"rocketmq_storage_dispatch_behind_bytes{{{NODES}}}", "{{node_id}} dispatch"))),
        Panel("The same in time", "s", "Time between the newest message and the newest that is there",
              (Query(f"mqcore_flush_behind_seconds{{{NODES}}}", "{{node_id}} flush"),
               Query(f"mqcore_dispatch_behind_seconds{{{NODES}}}", "{{node_id}} dispatch"))),
        Panel("Room on the disk", "bytes", "What the broker can still have",
              (Query(f"mqcore_disk_free_bytes{{{NODES}}}", "{{node_id}}"),)),
        Panel("What may be wrong", "none", "Flags of the store; each but slave is a reason to look",
              (Query(f"mqcore_store_flag{{{NODES}}}", "{{node_id}} {{flag}}"),)),
        Panel("Refused", "cps", "Requests refused a second: late, for the page cache, for a quota, or as nothing was "
              "appended",
              (Query(_sum("mqcore_worker_timed_out_total", "node_id"), "{{node_id}} late"),
               Query(_sum("mqcore_worker_page_cache_busy_total", "node_id"), "{{node_id}} page cache"),
               Query(_sum("mqcore_worker_quota_refused_total", "node_id"), "{{node_id}} quota"),
               Query(_rate("mqcore_put_failed_total"), "{{node_id}} appends"))),
        Panel("Deaths of workers", "none", "How often a process of the broker has died in the last ten minutes",
              (Query(f"increase(mqcore_worker_restarts_total{{{NODES}}}[10m])", "{{node_id}} {{worker}}"),)),
    )),
    Section("Replication", (
        Panel("Slaves behind", "bytes", "Bytes of the log that a slave has not acknowledged",
              (Query(f"mqcore_slave_behind_bytes{{{NODES}}}", "{{node_id}} {{slave}}"),)),
        Panel("Slaves behind in time", "s", "For how long a slave has not had all",
              (Query(f"mqcore_slave_behind_seconds{{{NODES}}}", "{{node_id}} {{slave}}"),)),
        Panel("Epoch", "none", "Of a failover group: it grows with each election",
              (Query(f"mqcore_failover_epoch{{{NODES}}}", "{{instance}}"),)),
    )),
)  # fmt: skip


def panels() -> list[Panel]:
    return [panel for section in SECTIONS for panel in section.panels]


def dashboard() -> dict[str, Any]:
    """Return what Grafana imports."""
    placed: list[dict[str, Any]] = []
    top = 0
    for section in SECTIONS:
        placed.append(_heading(section.title, len(placed), top))
        top += 1
        left = 0
        for panel in section.panels:
            if left + panel.width > WIDTH:
                left, top = 0, top + panel.height
            placed.append(_panel(panel, len(placed), left, top))
            left += panel.width
        top += section.panels[-1].height
    return {
        "title": "mqcore brokers",
        "uid": "mqcore-brokers",
        "tags": ["rocketmq", "mqcore"],
        "schemaVersion": SCHEMA_VERSION,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), _choice("cluster", "cluster"), _choice("node", "node_id")]},
        "panels": placed,
    }


def text() -> str:
    """Return the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


def _heading(title: str, number: int, top: int) -> dict[str, Any]:
    place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": DATASOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": left, "y": top},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query.text, "legendFormat": query.legend, "datasource": DATASOURCE}
            for index, query in enumerate(panel.queries)
        ],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _choice(name: str, label: str) -> dict[str, Any]:
    query = f"label_values(mqcore_build_info, {label})"
    return {
        "name": name, "type": "query", "datasource": DATASOURCE, "query": query, "definition": query,
        "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }  # fmt: skip
