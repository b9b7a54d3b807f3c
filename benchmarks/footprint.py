"""What mqcore's broker costs before anybody asks for anything: time to the first message, CPU, memory per process.

    python -m benchmarks.footprint [--starts N] [--idle SECONDS] [--apache RELEASE] [--revision REV]

Each start is on an empty store with RocketMQ's default file sizes, its name server embedded. The clock runs from the
start of the process to the answer that acknowledges a message to a new topic; processor time is that of all the
broker's processes, from the start to the end of a clean stop. With ``--revision`` mqcore as it was at another commit
takes turns with this one. With ``--apache`` a name server and a broker of that release do the same once, their JVMs as
Apache's scripts start them but for the size of the heap.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import psutil

from benchmarks.harness.brokers import APACHE_JVM, environment_of
from benchmarks.harness.revisions import built_revision
from tests.compat import apache_requests as requests
from tests.rigs.apache import ApacheServer
from tests.rigs.maven import RELEASES
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import SUCCESS

DEFAULT_SIZES: Final = {"mappedFileSizeCommitLog": str(1 << 30), "mappedFileSizeConsumeQueue": str(300_000 * 20)}
BODY: Final = bytes(1024)
DEADLINE_S: Final = 30.0


def first_message_s(broker: MqcoreBroker | ApacheServer, started: float) -> float:
    """Send until a message is acknowledged; seconds since *started*."""
    number = 0
    while time.monotonic() - started < DEADLINE_S:
        properties = {"UNIQ_KEY": f"{number:032d}", "WAIT": "true"}
        number += 1
        try:
            answer = requests.send(broker.broker_address, "Footprint", 0, BODY, int(time.time() * 1000), properties)
        except OSError:
            continue
        if answer.code == SUCCESS:
            return time.monotonic() - started
    raise click.ClickException(f"no message was acknowledged within {DEADLINE_S:.0f} s")


def name_of(process: psutil.Process) -> str:
    words = process.cmdline()
    if words[0] == "java":
        return "Apache's name server" if any("Namesrv" in word for word in words) else "Apache's broker"
    return words[words.index("mqcore.workers") + 1] if "mqcore.workers" in words else "broker"


def cpu_s(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


@dataclass(slots=True)
class Starts:
    """What the starts of one commit took, seconds each."""

    label: str
    env: dict[str, str] | None
    to_first_message: list[float] = field(default_factory=list)
    of_a_processor: list[float] = field(default_factory=list)

    def make(self, idle_s: float) -> None:
        """Start a broker on an empty store and stop it; what it uses while idle is shown if *idle_s* is not 0."""
        used = children_cpu_s()
        with tempfile.TemporaryDirectory() as directory:
            started = time.monotonic()
            with MqcoreBroker(Path(directory) / "store", DEFAULT_SIZES, env=self.env) as broker:
                self.to_first_message.append(first_message_s(broker, started))
                if idle_s:
                    click.echo(self.label)
                    main_process = psutil.Process(broker.pid)
                    show_idle([main_process, *main_process.children(recursive=True)], idle_s)
                broker.stop()
        if not idle_s:
            self.of_a_processor.append(children_cpu_s() - used)

    def show(self) -> None:
        """Print the medians."""
        for what, seconds in (
            ("start to first acknowledged message", self.to_first_message),
            ("processor time of a start and a stop", self.of_a_processor),
        ):
            click.echo(f"{self.label}: {what}: median {statistics.median(seconds):.2f} s, "
                       f"{min(seconds):.2f} to {max(seconds):.2f} s, {len(seconds)} times")  # fmt: skip


def children_cpu_s() -> float:
    """What processes have used that this one has started and waited for, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@click.command(help=__doc__)
@click.option(
    "--starts", default=5, show_default=True, type=click.IntRange(min=1), help="Broker starts; medians count."
)
@click.option("--idle", default=20.0, show_default=True, help="Seconds for which one more broker is left alone.")
@click.option("--apache", type=click.Choice(list(RELEASES)), help="Measure this release of Apache's in the same run.")
@click.option("--revision", default="", help="A commit of mqcore to be compared, too.")
def main(starts: int, idle: float, apache: str | None, revision: str) -> None:
    """Measure and print."""
    sides = [Starts("mqcore", None)]
    if revision:
        sides.append(Starts(f"mqcore@{revision}", environment_of(built_revision(revision))))
    for _ in range(starts):
        for side in sides:
            side.make(0)
    for side in sides:
        side.make(idle)
        side.show()
    if apache is not None:
        measure_apache(apache, idle)


def measure_apache(release: str, idle: float) -> None:
    """Print the same of Apache's broker and name server."""
    with tempfile.TemporaryDirectory() as directory:
        started = time.monotonic()
        with ApacheServer(release, Path(directory) / "store", DEFAULT_SIZES, jvm_options=APACHE_JVM) as server:
            took = first_message_s(server, started)
            show_idle([psutil.Process(one.child.pid) for one in (server.broker, server.namesrv)], idle)
            server.stop()
    click.echo(f"start to first acknowledged message of Apache {release}: {took:.2f} s")


def show_idle(processes: list[psutil.Process], seconds: float) -> None:
    """Print what *processes* use while nobody asks for anything."""
    time.sleep(2)
    before, began = [cpu_s(process) for process in processes], time.monotonic()
    time.sleep(seconds)
    waited = time.monotonic() - began
    shares = [(cpu_s(process) - then) / waited for process, then in zip(processes, before, strict=True)]
    shared = sum(process.memory_full_info().pss for process in processes) / 2**20
    click.echo(f"idle: {sum(shares):.2%} of one core and {shared:.1f} MiB (PSS), all {len(processes)} processes "
               f"together, over {seconds:.0f} s")  # fmt: skip
    click.echo("process   of a core  resident  own share of it (PSS)  unique (USS), MiB")
    for process, share in zip(processes, shares, strict=True):
        memory = process.memory_full_info()
        click.echo(f"{name_of(process):8}  {share:9.2%}  {memory.rss / 2**20:8.1f}  {memory.pss / 2**20:21.1f}  "
                   f"{memory.uss / 2**20:12.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
