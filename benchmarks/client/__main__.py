"""The client library against mqcore's broker, beside confluent-kafka against a Kafka broker, in one run.

    python -m benchmarks.client [--count N] [--pairs N] [--only LOAD] [--revision REV] [--json FILE]

Both brokers run on this machine for the whole run; repetitions alternate, AB then BA, and medians are reported. The
bars: a plain sync send costs at most 30 us of client CPU; pipelined sends reach at least confluent-kafka's rate;
receiving is faster than confluent-kafka's; a handler gets at least half of what its ``poll`` gives; and in an event
loop sends and receives (``send_async``, ``receive_async``) reach five times aiokafka's rate. ``receive`` is what gives
messages in lists, ``poll`` here and ``consume`` there; ``receive_each`` is what gives them one by one, iteration here
and ``poll`` there; ``receive_handler`` is a handler of a push consumer here, and ``poll`` again there, which has no
such thing. With ``--revision`` the client of another commit takes its turn, too, at this commit's broker.

In sync sends both processes sleep in turn, and with them the cores. What waking them costs is the machine's, so a bare
socket stands beside the clients: it writes the same request to mqcore's broker and reads the answer, nothing else. And
they run a second time with the cores kept awake (``benchmarks.awake``). The bar is held against the first.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.awake import cores_awake
from benchmarks.client import loads
from benchmarks.client.kafka import KafkaBroker, missing_tools
from benchmarks.client.loads import BODY_SIZE, RECEIVE_MAX, WARM_UP_SHARE
from benchmarks.harness.brokers import environment_of
from benchmarks.harness.native import ROOT
from benchmarks.harness.revisions import built_revision
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.process import Child
from tests.rigs.wire import create_topic, has_route
from tests.waiting import wait_until

QUEUES: Final = 4
DEADLINE_S: Final = 600.0
SYNC_SEND_CPU_US_MAX: Final = 30.0
COUNTS: Final = {
    "send_sync": 20_000,
    "send_sync_awake": 20_000,
    "send_pipelined": 300_000,
    "receive": 600_000,
    "receive_each": 300_000,
    "receive_handler": 200_000,
    "send_async": 100_000,
    "receive_async": 300_000,
}
RECEIVES: Final = ("receive", "receive_each", "receive_handler", "receive_async")
HANDLER_SHARE_MIN: Final = 0.5
"""Of the messages/s of confluent-kafka's ``poll``, what a handler gets here."""
ASYNC_RATIO_MIN: Final = 5.0
"""In an event loop, beside aiokafka."""

MQCORE_PROPERTIES: Final = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxTransferCountOnMessageInMemory": str(RECEIVE_MAX),
    "maxTransferBytesOnMessageInMemory": str(2 << 20),
}
"""RocketMQ's defaults but for how much one pull may bring: 32 messages and 256 KiB against Kafka's 1 MiB of a
partition. A consumer that is to be fast needs that from either broker."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """One run of one load by one client. CPU times are us per message."""

    messages_per_s: float
    client_cpu_us: float
    broker_cpu_us: float


class Side:
    """One client with its broker."""

    def __init__(
        self,
        client: str,
        address: str,
        cpu_time_s: Callable[[], float],
        make_topic: Callable[[str], None],
        logs: Path,
        program: str = "",
        root: Path | None = None,
    ) -> None:
        """*program* is what *client* is called in ``loads``; of mqcore that in *root*, if it is not this one."""
        self.client = client
        self._program = program or client
        self._root = root
        self._address = address
        self._cpu_time_s = cpu_time_s
        self._make_topic = make_topic
        self._logs = logs
        self._topics: set[str] = set()
        self._filled: set[str] = set()

    def other(self, client: str, program: str = "", root: Path | None = None) -> Side:
        """Return another client's side, with the same broker."""
        side = Side(client, self._address, self._cpu_time_s, self._make_topic, self._logs, program, root)
        side._topics = self._topics
        return side

    def run(self, load: str, topic: str, count: int) -> Repetition:
        """Let the client run one load; raises ChildError when it fails."""
        if topic not in self._topics:
            self._make_topic(topic)
            self._topics.add(topic)
        command, directory = self.command(load, topic, count), self.directory()
        environment = os.environ | environment_of(self._root or ROOT)
        log = self._logs / f"{self.client}.out"
        with Child(command, log=log, talks=True, directory=directory, env=environment) as child:
            child.read_event("ready", DEADLINE_S)
            begin_s = self._cpu_time_s()
            child.tell("go")
            done = child.read_event("done", DEADLINE_S)
            broker_s = self._cpu_time_s() - begin_s
            child.end_input()
            child.wait()
        per_message = 1e6 / done["messages"]
        return Repetition(
            done["messages"] / done["seconds"], done["client_cpu_s"] * per_message, broker_s * per_message
        )

    def fill(self, topic: str, count: int) -> None:
        """Send messages for those who are to receive; once for all clients of a broker, and by the fastest."""
        program = {"aiokafka": "confluent"}.get(self._program, self._program)
        if topic not in self._filled:
            self._filled.add(topic)
            self.other(self.client, program, self._root).run("send_pipelined", topic, count)

    def command(self, load: str, topic: str, count: int) -> list[str]:
        """Return what runs the client in one load."""
        # By its path, as another commit's benchmarks may lack a load.
        return [sys.executable, loads.__file__, self._program, load, self._address, topic, str(count)]

    def directory(self) -> Path | None:
        """Return where it runs, if not here."""
        return None


def mqcore_side(stack: ExitStack, directory: Path) -> Side:
    broker = stack.enter_context(MqcoreBroker(directory / "store", MQCORE_PROPERTIES))

    def make_topic(name: str) -> None:
        create_topic(broker.broker_address, name, queues=QUEUES)
        wait_until(lambda: has_route(broker.name_server, name), describe=f"route to {name}")

    return Side("mqcore", broker.name_server, broker.cpu_time_s, make_topic, directory)


def confluent_side(stack: ExitStack, directory: Path) -> Side:
    broker = stack.enter_context(KafkaBroker(directory / "kafka"))
    return Side(
        "confluent", broker.address, broker.child.cpu_time_s, lambda name: broker.create_topic(name, QUEUES), directory
    )


def run_load(sides: Sequence[Side], load: str, count: int, pairs: int) -> Mapping[str, list[Repetition]]:
    """Alternate the sides; a topic to receive from is filled first."""
    found: dict[str, list[Repetition]] = {side.client: [] for side in sides}
    topic = f"benchmark_{load}"
    if load in RECEIVES:
        for side in sides:
            side.fill(topic, count + count // WARM_UP_SHARE)
    for number in range(pairs):
        for side in sides if number % 2 == 0 else reversed(sides):
            repetition = side.run(load, topic, count)
            found[side.client].append(repetition)
            click.echo(f"{load:16} {side.client:10} {line(repetition)}", err=True)
    return found


def line(repetition: Repetition) -> str:
    return (
        f"{repetition.messages_per_s:10,.0f} messages/s  {repetition.client_cpu_us:6.2f} us client  "
        f"{repetition.broker_cpu_us:6.2f} us broker"
    )


def median(repetitions: list[Repetition]) -> Repetition:
    """Return the median of each figure."""
    columns = zip(*((one.messages_per_s, one.client_cpu_us, one.broker_cpu_us) for one in repetitions), strict=True)
    return Repetition(*(statistics.median(column) for column in columns))


def bars(medians: Mapping[str, Mapping[str, Repetition]]) -> list[tuple[str, bool]]:
    """Return what was promised for the loads that were run, and whether it was kept."""
    found: list[tuple[str, bool]] = []
    if "send_sync" in medians:
        cost_us = medians["send_sync"]["mqcore"].client_cpu_us
        bare_us = medians["send_sync"]["bare"].client_cpu_us
        text = f"sync send at most {SYNC_SEND_CPU_US_MAX:.0f} us: {cost_us:.1f}, a bare socket {bare_us:.1f}"
        found.append((text, cost_us <= SYNC_SEND_CPU_US_MAX))
    for load in ("send_pipelined", "receive"):
        if load in medians:
            ours, theirs = medians[load]["mqcore"].messages_per_s, medians[load]["confluent"].messages_per_s
            found.append((f"{load} at least confluent-kafka's: {ours / theirs:.2f} times", ours >= theirs))
    if "receive_handler" in medians:
        handler, poll = (medians["receive_handler"][client].messages_per_s for client in ("mqcore", "confluent"))
        text = (
            f"a handler gets at least {HANDLER_SHARE_MIN:g} of what confluent-kafka's poll gives: {handler / poll:.2f}"
        )
        found.append((text, handler >= HANDLER_SHARE_MIN * poll))
    for load in ("send_async", "receive_async"):
        if load in medians:
            ours, theirs = medians[load]["mqcore"].messages_per_s, medians[load]["aiokafka"].messages_per_s
            text = f"{load} at least {ASYNC_RATIO_MIN:g} times aiokafka's: {ours / theirs:.2f} times"
            found.append((text, ours >= ASYNC_RATIO_MIN * theirs))
    return found


def clients_of(load: str, ours: Side, theirs: Side, before: Side | None) -> list[Side]:
    """Return whose figures stand beside each other."""
    if load.endswith("_async"):
        sides = [ours, theirs.other("aiokafka")]
    else:
        sides = [ours, theirs]
    if load.startswith("send_sync"):
        sides.append(ours.other("bare"))
    return sides if before is None else [*sides, before]


@click.command()
@click.option("--count", type=click.IntRange(1000), help="Messages of one repetition; by default 20,000 to 600,000.")
@click.option("--pairs", type=click.IntRange(1), default=5, show_default=True)
@click.option("--only", type=click.Choice(list(COUNTS)), multiple=True)
@click.option("--revision", default="", help="A commit of mqcore whose client takes its turn, too.")
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), help="Where the stores go for the run.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
def main(
    count: int | None, pairs: int, only: tuple[str, ...], revision: str, directory: Path | None, json_file: Path | None
) -> None:
    """Compare the clients and print medians and bars; exit code 1 when a bar is not met."""
    if missing := missing_tools():
        raise click.ClickException(missing)
    medians: dict[str, dict[str, Repetition]] = {}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory, prefix="benchmark-")))
        ours = mqcore_side(stack, place)
        theirs = confluent_side(stack, place)
        before = ours.other(f"mqcore@{revision}", "mqcore", built_revision(revision)) if revision else None
        for load in only or COUNTS:
            shown = clients_of(load, ours, theirs, before)
            with cores_awake() if load.endswith("_awake") else nullcontext():
                found = run_load(shown, load, count or COUNTS[load], pairs)
            medians[load] = {client: median(repetitions) for client, repetitions in found.items()}
    click.echo(f"medians of {pairs}, bodies of {BODY_SIZE} bytes, {QUEUES} queues")
    for load, by_client in medians.items():
        for client, repetition in by_client.items():
            click.echo(f"{load:16} {client:10} {line(repetition)}")
    results = bars(medians)
    for text, is_met in results:
        click.echo(f"{'met ' if is_met else 'MISSED'} {text}")
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(medians, results), indent=2))
    sys.exit(0 if all(is_met for _, is_met in results) else 1)


def as_json(medians: Mapping[str, Mapping[str, Repetition]], results: list[tuple[str, bool]]) -> dict[str, Any]:
    """Return the figures as values that JSON can hold."""
    return {
        "medians": {
            load: {
                client: {
                    "messages_per_s": one.messages_per_s,
                    "client_cpu_us": one.client_cpu_us,
                    "broker_cpu_us": one.broker_cpu_us,
                }
                for client, one in by_client.items()
            }
            for load, by_client in medians.items()
        },
        "bars": [{"bar": text, "met": is_met} for text, is_met in results],
    }


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.client")
