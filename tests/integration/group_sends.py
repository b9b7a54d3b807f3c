"""What tests of failover groups have in common: messages and where they are, epochs, processes that stand still."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator

import psutil

from mqcore.client import Message, Producer, SendStatus
from tests.fault.campaign.evidence import Replica
from tests.fault.campaign.rig import TOPIC, Group
from tests.fault.rig import find_worker
from tests.waiting import wait_until

DEADLINE_S = 60.0


class Sends:
    """What was sent, and where the broker said that it is."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._numbers = itertools.count()
        self.stored: dict[tuple[int, int], str] = {}

    def send(self, count: int, timeout_s: float = DEADLINE_S, *, padding: str = "") -> None:
        """Send so many messages, each of which must be stored within the deadline."""
        for _ in range(count):
            body = f"{next(self._numbers)}{padding}"
            receipt = self._producer.send(Message(TOPIC, body.encode()), timeout_s=timeout_s)
            assert receipt.status is SendStatus.SEND_OK, receipt
            self.stored[receipt.queue.queue_id, receipt.offset] = body

    def forget(self, is_gone: Callable[[int, int], bool]) -> None:
        """Messages were deleted: *is_gone* is asked for each queue id and offset."""
        self.stored = {place: body for place, body in self.stored.items() if not is_gone(*place)}

    def check(self, replica: Replica) -> None:
        """All that was sent is there, each where it was said to be, and nothing else is there as well."""
        for place, body in self.stored.items():
            assert replica.messages[place] == [body], (replica.name, place)
        assert all(len(found) == 1 for found in replica.messages.values()), "two messages have one place"


def epoch_of(group: Group) -> int:
    state = group.view().state
    assert state is not None
    return state.epoch


def await_epoch_behind(group: Group, epoch: int) -> None:
    wait_until(lambda: epoch_of(group) > epoch, DEADLINE_S, f"somebody leads an epoch behind {epoch}")


def hold(stack: contextlib.ExitStack, *processes: psutil.Process) -> None:
    """Let *processes* stand still until *stack* is closed, or they are killed."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
        stack.callback(_go_on, process)


@contextlib.contextmanager
def lost_with_its_master(group: Group) -> Iterator[str]:
    """The address of a master, of an asynchronous group, all of which is in sync.

    What is sent there meanwhile can be read there and is nowhere else; at the end it is killed, and another one leads.
    """
    epoch, master = epoch_of(group), group.brokers[group.master_number()]
    with contextlib.ExitStack() as held:
        # Nobody gets the log, nobody is taken out of the set for it, and nobody stands for election yet.
        hold(held, find_worker(master, "ha"), *(psutil.Process(broker.pid) for broker in group.brokers))
        yield master.broker_address
        master.kill()
    await_epoch_behind(group, epoch)


def _go_on(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)
