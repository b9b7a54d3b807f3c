"""How long a broker with very many queues takes to start, on mqcore's broker and Apache's.

    python -m benchmarks.many_queues [--queues N] [--units N] [--apache RELEASE] [--crash] [--check SECONDS]

Topics of 200 queues are made and a message is sent to each queue; the broker is stopped and started on the store again.
The clock runs from the start of the process until a pull has brought the message of the last queue: recovered, serving,
registered. With ``--crash`` a start after SIGKILL follows. Shown are also the mappings and the memory of the process
of the broker that has most.

A consume queue file has 1,020 units here, and not RocketMQ's 300,000 (``--units 300000``). Apache's broker maps each
and lets the kernel read ahead, so that the first touch of a queue brings in as much of its file as the device reads
ahead: with 8 MiB all of the 6 MB, and for 10,000 queues 60 GB of page cache. It was not there within 400 s. To this
broker the size makes no difference. Apache's also maps all queues, and cannot start with more than some 60,000 of
them while vm.max_map_count has its default. A start of it that takes longer than ``--deadline`` is shown as such,
with the last line of its log; `--apache ""` leaves it out.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import click
import psutil

from benchmarks.first_messages import Connection, pull_frame
from benchmarks.harness.brokers import APACHE_JVM, STORE_PROPERTIES, address_of
from benchmarks.harness.control import ControlClient
from benchmarks.harness.frames import send_templates
from mqcore.codes import SerializeType
from mqcore.layout import CONSUME_QUEUE_UNIT
from tests.rigs.apache import ApacheServer
from tests.rigs.mqcore_broker import MqcoreBroker

QUEUES_PER_TOPIC: Final = 200
WINDOW: Final = 128
DEADLINE_S: Final = 600.0
FILE_UNITS: Final = 1020
Server = MqcoreBroker | ApacheServer


def topic_of(number: int) -> str:
    return f"ManyQueues{number}"


def fill(server: Server, queues: int) -> None:
    """Make the topics, and send a message to each queue."""
    address = address_of(server.broker_address)
    connection = Connection(address)
    under_way = 0
    with ControlClient(address) as control:
        for number in range(-(-queues // QUEUES_PER_TOPIC)):
            count = min(QUEUES_PER_TOPIC, queues - number * QUEUES_PER_TOPIC)
            control.create_topic(topic_of(number), count)
            for template in send_templates(
                topic_of(number), queue_count=count, body=bytes(100), batch_size=1,
                serialize_type=SerializeType.JSON, repetition=0,
            ):  # fmt: skip
                connection.write(template.data)
                under_way += 1
                while under_way >= WINDOW:
                    under_way -= _is_sent(connection)
    while under_way:
        under_way -= _is_sent(connection)
    await_message(server, queues)


def _is_sent(connection: Connection) -> int:
    answer = connection.read()
    if answer["code"] != 0:
        raise click.ClickException(f"a send was answered with {answer['code']}: {answer['remark']}")
    return 1


def await_message(server: Server, queues: int) -> None:
    """Return when a pull brings the message of the last queue."""
    number, queue_id = divmod(queues - 1, QUEUES_PER_TOPIC)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            connection = Connection(address_of(server.broker_address))
            connection.write(pull_frame(topic_of(number), queue_id, 0))
            if connection.read()["code"] == 0:
                return
        except OSError:
            pass
        time.sleep(0.005)
    raise click.ClickException(f"the last of {queues} queues has no message")


def footprint(pid: int) -> str:
    """The mappings and the memory of the largest of a broker's processes."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    mappings = max(len(Path(f"/proc/{process.pid}/maps").read_text().splitlines()) for process in processes)
    return f"{mappings:9} {sum(process.memory_info().rss for process in processes) / 2**20:8.0f}"


@click.command(help=__doc__)
@click.option("--queues", default=10_000, show_default=True, type=click.IntRange(min=1))
@click.option("--units", default=FILE_UNITS, show_default=True, type=click.IntRange(min=1), help="In a file.")
@click.option("--deadline", default=300.0, show_default=True, type=float, help="For a start of Apache's, seconds.")
@click.option("--apache", default="4.9.8", show_default=True, help="Release of the other broker; empty for none.")
@click.option("--crash", is_flag=True, help="Also start after SIGKILL.")
@click.option("--directory", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where stores go.")
@click.option("--check", type=float, help="Exit with 1 if mqcore's clean start takes longer, seconds.")
def main(
    queues: int, units: int, deadline: float, apache: str, crash: bool, directory: Path | None, check: float | None
) -> None:
    click.echo(f"{units} units in a file, load {os.getloadavg()[0]:.1f}")
    click.echo(
        f"{'broker':14} {'queues':>7} {'start after':12} {'stop s':>7} {'start s':>8} {'mappings':>9} {'MiB':>8}"
    )
    clean_s: dict[str, float] = {}
    for label in ("mqcore", *([f"apache {apache}"] if apache else [])):
        with tempfile.TemporaryDirectory(dir=directory, prefix="benchmark-") as root:
            server = start(label, Path(root) / "store", units)
            try:
                fill(server, queues)
                for kind in ("clean stop", *(["crash"] if crash else [])):
                    began = time.monotonic()
                    end_broker(server, kind, deadline)
                    stopped = time.monotonic()
                    try:
                        server.start_again(deadline)
                    except AssertionError:
                        click.echo(f"{label:14} {queues:7} {kind:12} {stopped - began:7.1f} not within {deadline:g} s")
                        click.echo(last_line(server))
                        break
                    await_message(server, queues)
                    started = time.monotonic()
                    clean_s.setdefault(label, started - stopped)
                    pid = server.pid if isinstance(server, MqcoreBroker) else server.broker.pid
                    click.echo(
                        f"{label:14} {queues:7} {kind:12} {stopped - began:7.1f} {started - stopped:8.2f} "
                        f"{footprint(pid)}"
                    )
            finally:
                server.kill()
    if check is not None and clean_s["mqcore"] > check:
        sys.exit(1)


def start(label: str, store_dir: Path, units: int) -> Server:
    properties = {**STORE_PROPERTIES, "mappedFileSizeConsumeQueue": str(units * CONSUME_QUEUE_UNIT.size)}
    if label == "mqcore":
        return MqcoreBroker(store_dir, properties)
    return ApacheServer(label.split()[1], store_dir, properties, jvm_options=APACHE_JVM)


def last_line(server: Server) -> str:
    """What the broker logged last."""
    kind, name = ("apache", "broker.log") if isinstance(server, ApacheServer) else ("mqcore", "broker.out")
    log = server.store_dir.with_name(f"{server.store_dir.name}.{kind}") / name
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f"  its last word: {lines[-1][:160]}" if lines else "  it has logged nothing"


def end_broker(server: Server, kind: str, deadline_s: float) -> None:
    broker = server if isinstance(server, MqcoreBroker) else server.broker
    if kind == "crash":
        broker.kill()
    else:
        broker.child.stop(deadline_s)


if __name__ == "__main__":
    main()
