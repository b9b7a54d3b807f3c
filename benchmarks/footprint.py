"""What mqcore's broker costs before anybody asks for anything: time to the first message, idle CPU, memory per process.

    python -m benchmarks.footprint [--starts N] [--idle SECONDS] [--apache RELEASE]

Each start is on an empty store with RocketMQ's default file sizes, its name server embedded. The clock runs from the
start of the process to the answer that acknowledges a message to a new topic. With ``--apache`` a name server and a
broker of that release do the same once, their JVMs as Apache's scripts start them but for the size of the heap.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import click
import psutil

from benchmarks.harness.brokers import APACHE_JVM
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


@click.command(help=__doc__)
@click.option("--starts", default=5, show_default=True, help="Broker starts; the median counts.")
@click.option("--idle", default=20.0, show_default=True, help="Seconds for which the last of them is left alone.")
@click.option("--apache", type=click.Choice(list(RELEASES)), help="Measure this release of Apache's in the same run.")
def main(starts: int, idle: float, apache: str | None) -> None:
    """Measure and print."""
    times = []
    for number in range(starts):
        with tempfile.TemporaryDirectory() as directory:
            started = time.monotonic()
            with MqcoreBroker(Path(directory) / "store", DEFAULT_SIZES) as broker:
                times.append(first_message_s(broker, started))
                if number == starts - 1:
                    main_process = psutil.Process(broker.pid)
                    show_idle([main_process, *main_process.children(recursive=True)], idle)
                broker.stop()
    click.echo(f"start to first acknowledged message: median {statistics.median(times):.2f} s, "
               f"{min(times):.2f} to {max(times):.2f} s, {starts} starts")  # fmt: skip
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
    click.echo(f"idle: {sum(shares):.2%} of one core, all {len(processes)} processes together, over {seconds:.0f} s")
    click.echo("process   of a core  resident  own share of it (PSS)  unique (USS), MiB")
    for process, share in zip(processes, shares, strict=True):
        memory = process.memory_full_info()
        click.echo(f"{name_of(process):8}  {share:9.2%}  {memory.rss / 2**20:8.1f}  {memory.pss / 2**20:21.1f}  "
                   f"{memory.uss / 2**20:12.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
