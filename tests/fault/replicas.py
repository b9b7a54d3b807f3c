"""What tests that break a master and its slave have in common."""

from __future__ import annotations

from pathlib import Path

from mqcore.codes import RequestCode
from tests.fault.rig import ASYNC_FLUSH, COMMIT_LOG_FILE_SIZE, DEADLINE_S, attach_segment
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

PAIR = {**ASYNC_FLUSH, "brokerIP2": "127.0.0.1", "haSendHeartbeatInterval": "200"}


def start_slave(master: MqcoreBroker, store: Path, **properties: str) -> MqcoreBroker:
    """Start a slave of *master* on this machine."""
    role = {"namesrvAddr": master.name_server, "brokerId": "1", "brokerRole": "SLAVE"}
    return MqcoreBroker(store, {**PAIR, **role, **properties})


def await_slave(master: MqcoreBroker, count: int = 1) -> None:
    """Wait until *count* slaves of *master* copy."""
    segment = attach_segment(master)
    wait_until(lambda: segment.get("slave_count") == count, DEADLINE_S, f"{count} slaves copy")


def await_topic(slave: MqcoreBroker, topic: str) -> None:
    """Wait until a slave knows *topic*: tables are copied every ten seconds."""

    def topics() -> set[str]:
        return set(wire.call(slave.broker_address, RequestCode.GET_ALL_TOPIC_CONFIG).json()["topicConfigTable"])

    wait_until(lambda: topic in topics(), DEADLINE_S, f"the slave knows {topic}")


def refusal(slave: MqcoreBroker) -> str:
    """Why *slave* does not copy; empty if nothing speaks against it."""
    return str(wire.call(slave.broker_address, RequestCode.GET_BROKER_HA_STATUS).json().get("refusal", ""))


def logs_agree(one: Path, other: Path) -> None:
    """The bytes of both logs are the same up to the end of the shorter one, behind which there are zeros."""
    names = [sorted(path.name for path in (store / "commitlog").iterdir()) for store in (one, other)]
    for name in sorted(set(names[0]) & set(names[1])):
        ours, theirs = ((store / "commitlog" / name).read_bytes() for store in (one, other))
        end = min(len(ours.rstrip(b"\0")), len(theirs.rstrip(b"\0")))
        assert ours[:end] == theirs[:end], f"the logs differ in {name}"
        assert len(ours) == len(theirs) == COMMIT_LOG_FILE_SIZE
