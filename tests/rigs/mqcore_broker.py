"""mqcore's broker, with its embedded name server, as a child process."""

from __future__ import annotations

import contextlib
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from mqcore.testing.leftovers import has_ended, those_left
from tests.waiting import wait_until

from . import nursery
from .apache import TEST_PROPERTIES, write_properties
from .ports import free_broker_ports, free_port
from .process import Child
from .wire import serves

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
NURSERY = "mq-nursery"
"""What the process is called that forks workers."""


class MqcoreBroker:
    """`python -m mqcore.broker` with the store *store_dir*; it serves when the constructor returns.

    *properties* are RocketMQ's property names (and mqcore's own) and override the ones that make the broker small
    and local. Log and configuration go beside the store into <store>.mqcore.
    """

    def __init__(
        self,
        store_dir: Path,
        properties: Mapping[str, str] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        program: Sequence[str] = (nursery.MODULE,),
    ) -> None:
        """*tls* is what the rig's own calls go by; *program* is the module that is run, and arguments before others."""
        self.store_dir = store_dir
        self._env = env
        self._tls = tls
        self._program = program
        self._home = store_dir.with_name(store_dir.name + ".mqcore")
        self._home.mkdir(parents=True, exist_ok=True)
        self.properties = {
            "brokerName": "broker-a",
            "brokerClusterName": "DefaultCluster",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(free_broker_ports().listen),
            "namesrvListenPort": str(free_port()),
            "storePathRootDir": str(store_dir),
            "storePathCommitLog": str(store_dir / "commitlog"),
            **TEST_PROPERTIES,
            **(properties or {}),
        }
        host = self.properties["brokerIP1"]
        self.name_server = self.properties.get("namesrvAddr", f"{host}:{self.properties['namesrvListenPort']}")
        self.broker_address = f"{host}:{self.properties['listenPort']}"
        self.child = self._start()

    def _start(self, deadline_s: float = START_DEADLINE_S) -> Child:
        configuration = write_properties(self._home / "broker.conf", self.properties)
        child = self._child(configuration, self._home / "broker.out")
        try:
            wait_until(
                lambda: not child.is_alive or serves(self.name_server, self.broker_address, self._tls),
                deadline_s=deadline_s,
                describe=f"mqcore's broker at {self.broker_address} serves",
            )
            if not child.is_alive:
                raise child.error("ended while it started")
        except BaseException:
            child.kill()
            raise
        return child

    def _child(self, configuration: Path, log: Path) -> Child:
        if self._program == (nursery.MODULE,):
            return nursery.start(["-c", str(configuration)], log=log, env=self._env)
        return Child([sys.executable, "-m", *self._program, "-c", configuration], log=log, env=self._env)

    @property
    def apache_version(self) -> str:
        return ""

    @property
    def pid(self) -> int:
        """The broker process; the workers are its children."""
        return self.child.pid

    def pids(self) -> list[int]:
        return [self.pid]

    def descendants(self) -> list[psutil.Process]:
        """The live descendants of the broker process."""
        found: list[psutil.Process] = psutil.Process(self.pid).children(recursive=True)
        return found

    def workers(self) -> list[psutil.Process]:
        """Those that work: all descendants but the nursery that forks them."""
        found = []
        for process in self.descendants():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() != NURSERY:
                    found.append(process)
        return found

    def worker_pids(self) -> list[int]:
        return [worker.pid for worker in self.workers()]

    def cpu_time_s(self) -> float:
        """User and system time of the broker process and its live workers so far, seconds."""
        return self.child.cpu_time_s()

    def restart(self) -> None:
        """Stop it in order and start it again on the same store and ports."""
        self.stop()
        self.child = self._start()

    def start_again(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Start it again on the same store and ports after kill()."""
        self.child = self._start(deadline_s)

    def stop(self) -> None:
        """End it by SIGTERM. Raises if it takes too long, exits with a code other than 0 or leaves a worker behind."""
        workers = self.descendants() if self.child.is_alive else []
        code = self.child.stop(STOP_DEADLINE_S)
        left = _end(workers)
        if left:
            raise self.child.error(f"left workers behind: {left}")
        if code != 0:
            raise self.child.error(f"exit code: got {code}, wanted 0")

    def kill(self) -> None:
        """End the broker process by SIGKILL. Its workers have to notice by themselves; raises if one does not."""
        workers = self.descendants() if self.child.is_alive else []
        self.child.kill()
        left = _end(those_left(workers, STOP_DEADLINE_S))
        if left:
            raise self.child.error(f"workers outlived their killed broker: {left}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


def _end(processes: list[psutil.Process]) -> list[str]:
    """Kill what is left of the processes; gives a description of each that was."""
    names = []
    for process in processes:
        # One may end between any two of these looks; its number may then belong to somebody else, which psutil notices.
        with contextlib.suppress(psutil.NoSuchProcess):
            if not has_ended(process):
                names.append(f"{process.pid} {' '.join(process.cmdline())}")
                process.kill()
    return names
