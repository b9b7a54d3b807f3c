"""What access control costs: signed sends at a broker that checks them, beside one that does not.

    python benchmarks/acl.py [--load send:8x32] [--body 1024] [--rounds 5] [--seconds 4] [--apache]

The brokers run at the same time, and take turns under load. A frame is that of Apache's Java client; with keys it has
AccessKey and Signature, and its signature is verified each time. CPU is that of all processes of the broker, for each
message. With --apache the same of Apache's broker is measured as well.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import frames
from benchmarks.harness.loads import Connections, Load
from benchmarks.harness.native import Engine
from benchmarks.harness.procstat import tree_cpu_seconds
from mqcore.codes import SerializeType
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.signing import Signer
from tests.rigs.apache import SMALL, ApacheServer
from tests.rigs.mqcore_broker import MqcoreBroker

TOPIC = "Guarded"
QUEUES = 8
KEYS = """
accounts:
- {accessKey: benchmark, secretKey: benchmark secret, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
"""
SIGNER = Signer("benchmark", "benchmark secret")
KINDS = (("plain", False, False), ("signed, not checked", False, True), ("checked", True, True))
STORE = {"mappedFileSizeCommitLog": str(1 << 30), "mappedFileSizeConsumeQueue": str(300_000 * 20)}


def requests(load: Load, is_signed: bool) -> list[RemotingCommand]:
    properties = "WAIT\x01true\x02KEY_OF_ITS_OWN\x01" + frames.UNIQUE_PREFIX + "000000000000\x02"
    made = frames.send_requests(TOPIC, QUEUES, properties, frames.body_of(load.body_size), load.serialize_type)
    for request in made:
        assert request.ext_fields is not None
        # The load must not write into what is signed.
        request.ext_fields = {
            name: "1763800000000" if value == frames.BORN_TIMESTAMP_MARK else value
            for name, value in request.ext_fields.items()
        }
        if is_signed:
            SIGNER("", request)
    return made


class Side:
    """One broker under load."""

    def __init__(self, name: str, broker: MqcoreBroker | ApacheServer, pid: int, load: Load, is_signed: bool) -> None:
        host, _, port = broker.broker_address.partition(":")
        self.name, self.load = name, load
        self._pid = pid
        self._connections = Connections((host, int(port)), load.connections)
        templates = [frames.template_of(request) for request in requests(load, is_signed)]
        self._engine = Engine(self._connections.fds, load.window, templates, [], QUEUES)
        self.cpu_us: list[float] = []
        self.rates: list[float] = []

    def run(self, seconds: float) -> None:
        before = tree_cpu_seconds(self._pid)
        counts = self._engine.run(seconds)
        assert counts["codes"].keys() <= {0}, counts
        self.cpu_us.append((tree_cpu_seconds(self._pid) - before) / counts["all_messages"] * 1e6)
        self.rates.append(counts["messages"] / counts["elapsed_ns"] * 1e9)

    def close(self) -> None:
        self._connections.close()


@contextmanager
def sides(directory: Path, load: Load, with_apache: bool) -> Iterator[list[Side]]:
    with ExitStack() as stack:
        found: list[Side] = []
        for name, guarded, is_signed in KINDS:
            home = directory / name.replace(", ", "-").replace(" ", "-")
            home.mkdir()
            properties = {**STORE, **({"aclEnable": "true", "rocketmqHome": str(home)} if guarded else {})}
            (home / "conf").mkdir()
            (home / "conf" / "plain_acl.yml").write_text(KEYS)
            broker = stack.enter_context(MqcoreBroker(home / "store", properties))
            found.append(Side(f"mqcore {name}", broker, broker.pid, load, is_signed))
            if with_apache:
                store = home / "apache"
                conf = home / "apache.apache" / "conf"
                conf.mkdir(parents=True)
                (conf / "plain_acl.yml").write_text(KEYS)
                acl = {"aclEnable": "true"} if guarded else {}
                server = stack.enter_context(ApacheServer("4.9.8", store, {**STORE, **acl}, jvm_options=SMALL))
                found.append(Side(f"apache {name}", server, server.broker.pid, load, is_signed))
        for side in found:
            stack.callback(side.close)
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", default="send:8x32")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--binary", action="store_true", help="headers in RocketMQ's binary form")
    parser.add_argument("--apache", action="store_true")
    arguments = parser.parse_args()
    serialize_type = SerializeType.ROCKETMQ if arguments.binary else SerializeType.JSON
    load = Load.parse(arguments.load, body_size=arguments.body, serialize_type=serialize_type)
    with tempfile.TemporaryDirectory() as directory, sides(Path(directory), load, arguments.apache) as found:
        for side in found:
            side.run(1.0)
            side.cpu_us.clear()
            side.rates.clear()
        for _ in range(arguments.rounds):
            for side in found:
                side.run(arguments.seconds)
        for side in found:
            base = next(other for other in found if other.name == f"{side.name.split()[0]} plain")
            print(
                f"{side.name:28} {statistics.median(side.rates):10,.0f} messages/s "
                f"{statistics.median(side.cpu_us):7.3f} us CPU/message "
                f"{statistics.median(a / b for a, b in zip(side.cpu_us, base.cpu_us, strict=True)):6.3f} of plain"
            )


if __name__ == "__main__":
    main()
