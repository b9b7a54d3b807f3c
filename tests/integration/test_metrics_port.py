"""A broker's metrics port under traffic: it counts what was sent and read, and knows when the broker is not ready."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from mqcore import aio
from mqcore.broker.metrics.rows import ROWS, SeriesKind, Subject
from mqcore.client import Client, Message
from tests.fault.rig import DEADLINE_S, await_successor, kill_worker
from tests.integration.client_helpers import eventually, send_numbers
from tests.rigs import Child, MqcoreBroker, etcd, make_topic
from tests.rigs.console import PageClient
from tests.rigs.ports import free_port
from tests.rigs.scrapes import Series, asked, by, get, scrape
from tests.waiting import wait_until

BODY = b"x" * 100

OF_SLAVES = ("is_copying", "master_behind", "master_silent_s")

NOT_HERE = {
    "mqcore_failover_epoch": "it is in no failover group",
    "rocketmq_timing_messages": "it has no timers",
    "rocketmq_timer_enqueue_lag": "the same",
    "rocketmq_timer_enqueue_total": "the same",
    "rocketmq_timer_dequeue_latency": "the same",
    "rocketmq_timer_dequeue_total": "the same",
    "rocketmq_group_dlqdiff": "nobody reads dead letters",
    "rocketmq_send_to_dlq_messages_total": "nothing was given up",
    "rocketmq_topic_dlq_offset": "the same",
    "rocketmq_storage_message_reserve_time": "the log is too short",
    **dict.fromkeys(
        (row.name for row in ROWS if row.subject is Subject.SLAVE or row.key == "replicated_behind"), "it has no slave"
    ),
    **dict.fromkeys((row.name for row in ROWS if row.key in OF_SLAVES), "it is no slave"),
    "mqcore_confirmed_behind_bytes": "it is in no failover group",
    **dict.fromkeys(
        (row.name for row in ROWS if row.subject is Subject.PRESSURE and not Path("/proc/pressure").exists()),
        "the kernel does not say",
    ),
}
"""Metrics without a series here, and why. Besides, rates of the runtime table have a span to wait for."""


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[MqcoreBroker]:
    properties = {"metricsPort": str(port), "workerRestartBackoffMillis": "60000"}
    with MqcoreBroker(tmp_path_factory.mktemp("metrics") / "store", properties) as running:
        yield running


async def test_each_metric_has_series_that_count_what_was_sent_and_read(broker: MqcoreBroker, port: int) -> None:
    topic = make_topic(broker, "counted")
    group = "G_" + topic
    async with aio.Client(broker.name_server, offset_commit_interval_s=0.1) as mq:
        await send_numbers(mq, topic, range(30))
        async with mq.consumer(group, {topic: "*"}, from_where="earliest") as consumer:
            seen = 0
            async for message in consumer:
                seen += 1
                message.ack()
                if seen == 30:
                    break
            await eventually(lambda: lag(port, group, topic) == 0, "all is committed")
            await eventually(lambda: lag(port, group, f"%RETRY%{group}") == 0, "its retry topic is known")
            found = scrape(port)
        await send_numbers(mq, topic, range(5))
        await eventually(lambda: lag(port, group, topic) == 5, "what nobody has read is behind")
        late = scrape(port)
    check_rows(found)
    pair = f"{group} {topic}"
    assert by(found, "rocketmq_messages_in_total", "topic")[topic] == 30
    assert by(found, "rocketmq_messages_out_total", "consumer_group", "topic")[pair] == 30
    assert by(found, "rocketmq_producer_offset", "topic")[topic] == 30
    assert by(found, "rocketmq_consumer_offset", "group", "topic")[pair] == 30
    assert by(found, "rocketmq_consumer_inflight_messages", "consumer_group", "topic")[pair] == 0
    assert by(found, "rocketmq_producer_tps", "topic")[topic] > 0
    kinds = by(found, "rocketmq_consumer_connections", "consumer_group", "language", "consume_mode")
    assert kinds == {f"{group} python push": 1}
    assert found["mqcore_put_messages_total"][0][1] >= 30
    assert found["mqcore_put_latency_seconds_count"][0][1] == found["mqcore_put_messages_total"][0][1]
    answered = by(found, "rocketmq_rpc_latency_count", "request_code", "response_code", "is_long_polling")
    assert answered["send_message_v2 success false"] == 30
    pulls = answered["pull_message success false"] + answered["pull_message success true"]
    assert pulls == found["mqcore_pulls_found_total"][0][1]
    for name, labels in (
        ("rocketmq_consumer_lag_latency", ("consumer_group", "topic")),
        ("rocketmq_group_get_latency_by_storetime", ("group", "topic")),
    ):
        assert by(found, name, *labels)[pair] == 0
        assert 0 < by(late, name, *labels)[pair] < DEADLINE_S * 1000


def check_rows(found: Series) -> None:
    """Each row of the table has a series, or is named in NOT_HERE, and has the labels of the row."""
    names = {row: f"{row.name}_bucket" if row.kind is SeriesKind.HISTOGRAM else row.name for row in ROWS}
    missing = {row.name for row, name in names.items() if name not in found} - NOT_HERE.keys()
    assert {name for name in missing if not name.endswith(("_tps10", "_tps60", "_tps600"))} == set()
    for row, name in names.items():
        wanted = {*row.labels, "le"} if row.kind is SeriesKind.HISTOGRAM else {*row.labels}
        assert all(set(labels) == wanted for labels, _ in found.get(name, [])), name


def lag(port: int, group: str, topic: str) -> float | None:
    return by(scrape(port), "rocketmq_consumer_lag_messages", "consumer_group", "topic").get(f"{group} {topic}")


def test_each_process_is_shown(broker: MqcoreBroker, port: int) -> None:
    found = scrape(port)
    assert by(found, "mqcore_worker_up", "worker") == {
        "broker": 1, "flush-0": 1, "reput-0": 1, "pull-0": 1, "send-0": 1,
    }  # fmt: skip
    assert by(found, "mqcore_worker_connections", "worker")["send-0"] >= 0


def test_what_processes_use_is_told(broker: MqcoreBroker, port: int) -> None:
    (send,) = [worker for worker in broker.workers() if "send" in worker.cmdline()]
    topic = make_topic(broker, "worked")
    with Client(broker.name_server) as mq, mq.producer("worker") as producer:

        def has_worked() -> bool:
            for _ in range(200):
                producer.send(Message(topic, BODY))
            return send.cpu_times().user > 0

        wait_until(has_worked, DEADLINE_S, "the send worker has used a tick of the clock")
    found = scrape(port)
    resident = by(found, "mqcore_worker_resident_bytes", "worker")["send-0"]
    assert resident == pytest.approx(send.memory_info().rss, rel=0.2)
    used = by(found, "mqcore_worker_cpu_seconds_total", "worker", "mode")
    assert 0 < used["send-0 user"] <= send.cpu_times().user
    assert by(found, "mqcore_worker_threads", "worker")["send-0"] == send.num_threads()
    switched = by(found, "mqcore_worker_context_switches_total", "worker", "switch")
    wait_until(
        lambda: (
            by(scrape(port), "mqcore_worker_context_switches_total", "worker", "switch")["send-0 voluntary"]
            > switched["send-0 voluntary"]
        ),
        DEADLINE_S,
        "it sleeps and wakes",
    )
    assert found["mqcore_host_processors"][0][1] >= 1
    assert by(found, "mqcore_host_cpu_seconds_total", "mode")["idle"] > 0


def test_series_vanish_with_their_topic_and_group(broker: MqcoreBroker, port: int) -> None:
    topic = make_topic(broker, "vanishing")
    with Client(broker.name_server) as mq:
        with mq.producer("P") as producer:
            producer.send(Message(topic, BODY))
        wait_until(lambda: by(scrape(port), "rocketmq_messages_in_total", "topic").get(topic) == 1, DEADLINE_S)
        mq.admin.delete_topic(topic)
    assert topic not in by(scrape(port), "rocketmq_messages_in_total", "topic")


def test_a_broker_that_serves_lives_and_is_ready(broker: MqcoreBroker, port: int) -> None:
    assert get(port, "/healthz")[0] == 200
    status, _ = get(port, "/readyz")
    facts = asked(port, "/readyz")
    assert (status, facts["ready"], facts["reasons"], facts["role"]) == (200, True, [], "master")
    assert scrape(port)["mqcore_ready"][0][1] == 1


def test_a_master_and_its_slave_show_how_far_apart_they_are(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    with MqcoreBroker(tmp_path / "master", {"metricsPort": str(ports[0])}) as master:
        topic = make_topic(master, "copied")
        of_slave = {"namesrvAddr": master.name_server, "brokerId": "1", "brokerRole": "SLAVE"}
        with MqcoreBroker(tmp_path / "slave", {"metricsPort": str(ports[1]), **of_slave}):
            with Client(master.name_server) as mq, mq.producer("P") as producer:
                producer.send(Message(topic, BODY))

            def is_copied() -> bool:
                return by(scrape(ports[0]), "mqcore_slave_behind_bytes", "node_id").get("broker-a") == 0

            wait_until(is_copied, DEADLINE_S, "the slave has all")
            ofs = scrape(ports[0]), scrape(ports[1])
            assert [found["mqcore_is_master"][0][1] for found in ofs] == [1, 0]
            assert [found["mqcore_commit_log_max_offset_bytes"][0][1] > 0 for found in ofs] == [True, True]
            assert ofs[0]["mqcore_slaves"][0][1] == 1
            assert ofs[0]["mqcore_replicated_behind_bytes"][0][1] == 0
            assert ofs[0]["mqcore_slave_sent_bytes_total"][0][1] > 0
            assert ofs[1]["mqcore_master_connected"][0][1] == 1
            assert ofs[1]["mqcore_master_behind_bytes"][0][1] == 0
            assert asked(ports[1], "/readyz")["role"] == "slave"
            wait_until(lambda: asked(ports[1], "/readyz")["ready"], DEADLINE_S, "a slave is ready, too")
        wait_until(lambda: "mqcore_slave_behind_bytes" not in scrape(ports[0]), DEADLINE_S, "the slave's series end")


@pytest.mark.skipif(bool(etcd.missing_tools()), reason=f"etcd cannot run here: {etcd.missing_tools()}")
def test_a_broker_of_a_failover_group_tells_its_role_and_epoch(tmp_path: Path) -> None:
    own, console, name_server = free_port(), free_port(), f"127.0.0.1:{free_port()}"
    with etcd.Etcd(tmp_path) as engine, ExitStack() as stack:
        command = [sys.executable, "-m", "mqcore.namesrv", "--port", name_server.rpartition(":")[2]]
        names = Child([*command, "--dir", tmp_path / "namesrv"], log=tmp_path / "namesrv.out")
        stack.callback(names.kill)
        wait_until(lambda: "boot success" in names.log.read_text(), DEADLINE_S, "the name server serves")
        properties = {"failoverEtcd": engine.client, "namesrvAddr": name_server, "brokerRole": "SYNC_MASTER"}
        ports = {"metricsPort": str(own), "consolePort": str(console)}
        stack.enter_context(MqcoreBroker(tmp_path / "store", {**ports, **properties}))
        wait_until(lambda: asked(own, "/readyz")["ready"], DEADLINE_S, "it is ready")
        facts = asked(own, "/readyz")
        assert (facts["role"], facts["epoch"] >= 1, facts["member"], facts["phase"]) == ("master", True, 1, "leading")
        found = scrape(own)
        assert found["mqcore_failover_epoch"][0][1] == facts["epoch"]
        assert found["mqcore_confirmed_behind_bytes"][0][1] == 0
        # Who lives several lives has one console for all of them.
        assert "broker-a" in PageClient(console).get("/brokers").text


def test_a_port_is_nobody_elses_and_ends_with_its_broker(tmp_path: Path) -> None:
    own = free_port()
    with MqcoreBroker(tmp_path / "store", {"metricsPort": str(own)}) as broker:
        listening = {link.laddr[:2] for link in psutil.Process(broker.pid).net_connections("tcp") if not link.raddr}
        assert ("127.0.0.1", own) in listening
        assert not any(port == own and host != "127.0.0.1" for host, port in listening)
        broker.stop()
    with pytest.raises(OSError, match="refused"):
        get(own, "/healthz")


def test_a_worker_that_is_gone_makes_it_not_ready(broker: MqcoreBroker, port: int) -> None:
    # The first one's successor is there at once, and the second one's is a minute away.
    await_successor(broker, "reput", kill_worker(broker, "reput"))
    kill_worker(broker, "reput")
    wait_until(lambda: get(port, "/readyz")[0] == 503, DEADLINE_S, "it is noticed")
    assert asked(port, "/readyz")["reasons"] == ["the worker reput-0 does not run"]
    assert get(port, "/healthz")[0] == 200
    found = scrape(port)
    assert by(found, "mqcore_worker_up", "worker")["reput-0"] == 0
    assert by(found, "mqcore_worker_restarts_total", "worker")["reput-0"] == 2
    assert found["mqcore_ready"][0][1] == 0
