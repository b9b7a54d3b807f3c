"""How long nobody acknowledges when the master of a group is gone, or another one is to lead.

    python -m benchmarks.failover [--rounds N]

Three brokers, three etcd and a name server on this machine. In each round the master is killed, or stopped in order, or
stands still, and is back before the next one. Prints the time from then to the next SEND_OK: of our client, and of who
knows all brokers and asks one after the other. Where an operator lets another one lead, two threads of our client send
all the time, and it is the longest time without SEND_OK; a send that fails ends the run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from mqcore.client import Client, Message, Producer, SendStatus
from mqcore.codes import RequestCode
from mqcore.errors import MQError
from mqcore.protocol import headers
from tests.fault.campaign.rig import QUEUES, TOPIC, Group
from tests.rigs import wire
from tests.rigs.command_line import CommandLine
from tests.rigs.steady_sends import SteadySends
from tests.waiting import wait_until

FAULTS = ("killed", "stopped", "silent")
DEADLINE_S = 60.0
SEND_TIMEOUT_S = 1.0
PAUSE_S = 0.005
SETTLED_S = 1.0


def send_by_client(producer: Producer) -> bool:
    """Whether a message is stored now, or within a second."""
    with contextlib.suppress(MQError):
        return producer.send(Message(TOPIC, b"round"), timeout_s=SEND_TIMEOUT_S).status is SendStatus.SEND_OK
    return False


def send_bare(group: Group) -> bool:
    """Whether one of the brokers stores a message now."""
    fields = headers.encode_request(
        RequestCode.SEND_MESSAGE, producer_group="bare", topic=TOPIC, default_topic="TBW102",
        default_topic_queue_nums=QUEUES, queue_id=0, sys_flag=0, born_timestamp=int(time.time() * 1000), flag=0,
    )  # fmt: skip
    for broker in group.brokers:
        with contextlib.suppress(OSError, EOFError):
            answer = wire.call(broker.broker_address, RequestCode.SEND_MESSAGE, fields, b"round", timeout_s=0.2)
            if answer.code == 0:
                return True
    return False


def time_of_silence(send: Callable[[], bool], found: list[float], began: float) -> None:
    while time.monotonic() - began < DEADLINE_S:
        if send():
            found.append(time.monotonic() - began)
            return
        time.sleep(PAUSE_S)


def settle(group: Group) -> None:
    """Wait until every broker is in sync, and for the processor that who begins anew as a slave takes meanwhile."""
    group.await_in_sync(group.size)
    time.sleep(SETTLED_S)


def measure(group: Group, fault: str, rounds: int) -> None:
    figures: dict[str, list[float]] = {"client": [], "bare": []}
    for _ in range(rounds):
        group.await_whole()
        settle(group)
        number = group.master_number()
        broker = group.brokers[number]
        with Client(group.name_server) as client, client.producer("rounds") as producer:
            wait_until(lambda: send_by_client(producer), DEADLINE_S, "a message is stored")
            processes = [psutil.Process(broker.pid), *broker.workers()]
            began = time.monotonic()
            stopping = threading.Thread(target=broker.stop) if fault == "stopped" else None
            if stopping is not None:
                stopping.start()
                time.sleep(0.05)
            else:
                for process in processes:
                    os.kill(process.pid, signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
            senders = [
                threading.Thread(
                    target=time_of_silence, args=(lambda: send_by_client(producer), figures["client"], began)
                ),
                threading.Thread(target=time_of_silence, args=(lambda: send_bare(group), figures["bare"], began)),
            ]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
        if stopping is not None:
            stopping.join()
        if fault == "silent":
            for process in processes:
                os.kill(process.pid, signal.SIGCONT)
        else:
            broker.child.kill()
            group.start_again(number)
    for name, times in figures.items():
        tell(fault, name, times)


def measure_switches(group: Group, rounds: int) -> None:
    mqcore, silences = CommandLine(group.name_server), []
    with SteadySends(group.name_server, TOPIC) as sends:
        for _ in range(rounds):
            settle(group)
            named = str(group.said_by((group.master_number() + 1) % group.size)["brokerId"])
            began = time.monotonic()
            mqcore.json("ha", "switch", "--to", named)
            wait_until(partial(sends.has_answer_since, time.monotonic()), DEADLINE_S, "a message is stored")
            silences.append(sends.longest_silence_s(began))
    if sends.failed:
        raise SystemExit(f"sends have failed: {sends.failed}")
    tell("switched", "client", silences)


def tell(fault: str, name: str, times: list[float]) -> None:
    times.sort()
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    print(f"{fault:8} {name:7} rounds={len(times)} p50={times[len(times) // 2]:.3f} s p99={p99:.3f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=(*FAULTS, "switched"), help="one kind of round")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        Group(Path(directory), random.Random(), has_machines=False) as group,
    ):
        for fault in FAULTS:
            if given.only in (None, fault):
                measure(group, fault, given.rounds)
        if given.only in (None, "switched"):
            measure_switches(group, given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
