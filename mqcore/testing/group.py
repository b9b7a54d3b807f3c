"""``python -m mqcore.testing.group DIRECTORY``: a failover group on this machine to try out, until SIGINT or SIGTERM.

Three brokers, a name server and three etcd, all on loopback; what they store stays in the directory. What is killed is
started again after a while, so that one can watch a group lose its master and get it back. Nothing outlives this
process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from mqcore import clock
from mqcore._fast.base.process import die_with_parent
from mqcore.aio import Client
from mqcore.errors import MQError
from mqcore.protocol.group_bodies import GroupFacts

HOST: Final = "127.0.0.1"
BROKER_NAME: Final = "broker-a"
COMMIT_LOG_FILE_SIZE: Final = 64 << 20
RESTART_S: Final = 5.0
READY_S: Final = 120.0
STOP_S: Final = 30.0
LOOK_S: Final = 0.2
LOG_TAIL_BYTES: Final = 2_000

NO_ETCD: Final = """\
A failover group needs etcd, 3.4 or later, and there is none in PATH. It is one program:
  apt-get install etcd-server      Debian 12, Ubuntu 24.04 (then: systemctl disable --now etcd)
  apt-get install etcd             before
  dnf install etcd                 Fedora
or unpack a release of github.com/etcd-io/etcd, and put its directory into PATH."""


class StartError(Exception):
    """The group does not serve; the text says which part of it, and how its log ends."""


class GroupPart:
    """One program of the group, with a log of its own."""

    def __init__(self, name: str, command: Sequence[str | Path], directory: Path, address: str) -> None:
        self.name = name
        self.address = address
        self.log = directory / f"{name}.log"
        self._command = [str(word) for word in command]
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopping = False
        self.has_failed = False
        """It has ended by itself, and is not started again."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # An interrupt from the terminal is for this process, which stops them in their order.
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )

    async def keep(self, tell: Callable[[str], None]) -> None:
        """Start it again whenever it is killed, until it is stopped."""
        while True:
            assert self._process is not None
            status = await self._process.wait()
            if self._is_stopping:
                return
            if status >= 0:
                self.has_failed = True
                tell(f"{self.name} has ended by itself with status {status}; see {self.log}")
                return
            tell(f"{self.name} was ended by {signal.Signals(-status).name}, and is started again in {RESTART_S:.0f} s")
            await asyncio.sleep(RESTART_S)
            if not self._is_stopping:
                await self.start()
                tell(f"{self.name} is back, pid {self.pid}")

    async def stop(self) -> None:
        self._is_stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def failure(self) -> str:
        """How its log ends."""
        return f"{self.name}; {self.log} ends:\n{self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors='replace')}"


class LocalGroup:
    """All parts of a group on this machine. The first broker founds it; the others join it, in any order."""

    def __init__(
        self, directory: Path, etcd: str, *, name_server: int, brokers: Sequence[int], engines: Sequence[int]
    ) -> None:
        """The numbers are ports; each etcd has the one behind its own as well, for the others."""
        self._directory = directory
        self.name_server = f"{HOST}:{name_server}"
        python: list[str | Path] = [sys.executable, "-m"]
        cluster = ",".join(f"etcd{at}=http://{HOST}:{port + 1}" for at, port in enumerate(engines, 1))
        self.engines = [
            GroupPart(
                f"etcd{at}", [etcd, *_etcd_options(directory, at, port), "--initial-cluster", cluster], directory, ""
            )
            for at, port in enumerate(engines, 1)
        ]
        serve = [*python, "mqcore.namesrv", "--port", str(name_server), "--dir", directory / "namesrv"]
        self.names = GroupPart("namesrv", [*serve, "--set", f"bindAddress={HOST}"], directory, self.name_server)
        endpoints = ",".join(f"{HOST}:{port}" for port in engines)
        self.brokers = [
            GroupPart(
                f"broker{at}",
                [*python, "mqcore.broker", "-n", self.name_server, "--store", directory / f"broker{at}",
                 *_settings(at, port, endpoints)],
                directory,
                f"{HOST}:{port}",
            )
            for at, port in enumerate(brokers, 1)
        ]  # fmt: skip

    @property
    def parts(self) -> list[GroupPart]:
        return [*self.engines, self.names, *self.brokers]

    async def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for part in self.parts:
            await part.start()

    async def stop(self) -> None:
        """Stop the brokers, who take leave of the others, and then those."""
        await asyncio.gather(*(part.stop() for part in self.brokers))
        await asyncio.gather(*(part.stop() for part in (self.names, *self.engines)))

    async def await_in_sync(self) -> list[GroupFacts]:
        """Return what the brokers say when all are in sync. Raises StartError."""
        until_s = clock.monotonic_s() + READY_S
        async with Client(self.name_server) as mq:
            while clock.monotonic_s() < until_s:
                for part in self.parts:
                    if part.has_failed:
                        raise StartError(part.failure())
                facts = [said for part in self.brokers if (said := await _facts_of(mq, part)) is not None]
                if len(facts) == len(self.brokers) and _are_in_sync(facts):
                    return facts
                await asyncio.sleep(LOOK_S)
        raise StartError(f"not all brokers are in sync after {READY_S:.0f} s: {self.brokers[0].failure()}")


def _are_in_sync(facts: Sequence[GroupFacts]) -> bool:
    return any(said.is_master and len(said.in_sync) == len(facts) for said in facts)


async def _facts_of(mq: Client, broker: GroupPart) -> GroupFacts | None:
    try:
        return (await mq.admin.ha_status(broker.address)).failover_group
    except MQError:
        return None


def _etcd_options(directory: Path, at: int, port: int) -> list[str | Path]:
    own, others = f"http://{HOST}:{port}", f"http://{HOST}:{port + 1}"
    return [
        "--name", f"etcd{at}", "--data-dir", directory / f"etcd{at}",
        "--listen-client-urls", own, "--advertise-client-urls", own,
        "--listen-peer-urls", others, "--initial-advertise-peer-urls", others,
    ]  # fmt: skip


def _settings(at: int, port: int, endpoints: str) -> list[str]:
    settings = {
        "brokerName": BROKER_NAME,
        "brokerId": at - 1,
        "brokerRole": "SYNC_MASTER",
        "failoverEtcd": endpoints,
        "listenPort": port,
        "bindAddress": HOST,
        "brokerIP1": HOST,
        "brokerIP2": HOST,
        "mappedFileSizeCommitLog": COMMIT_LOG_FILE_SIZE,
    }
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def guide(group: LocalGroup, facts: Sequence[GroupFacts]) -> str:
    """What to try, as lines to paste. *facts* are those of its brokers."""
    beside = Path(sys.executable).with_name("mqcore")
    mqcore = f"{beside if beside.exists() else 'mqcore'} -n {group.name_server}"
    known = list(zip(group.brokers, facts, strict=True))
    brokers = [
        f"  {part.name}  {part.address}  pid {part.pid}  member {said.me}{', the master' if said.is_master else ''}"
        for part, said in known
    ]
    master = next(part for part, said in known if said.is_master)
    other = next(said for said in facts if not said.is_master)
    lines = [
        f"A group of three brokers, {BROKER_NAME}, serves; name server {group.name_server}. Ctrl-C stops all of it.",
        *brokers,
        "Send a message, and receive it:",
        f"  {mqcore} send hello --body 'hello, world'",
        f"  {mqcore} consume hello --group first -n 1",
        "Watch who leads, and who is in sync:",
        f"  {mqcore} ha status",
        f"Kill the master; another one takes its place, and the killed one comes back after {RESTART_S:.0f} s:",
        f"  kill -9 {master.pid}",
        "Let another one lead:",
        f"  {mqcore} ha switch --to {other.me}",
    ]
    return "\n".join(lines)


async def run(group: LocalGroup) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    keepers: list[asyncio.Task[None]] = []
    try:
        await group.start()
        keepers += [asyncio.create_task(part.keep(_tell)) for part in group.parts]
        ready, asked = asyncio.create_task(group.await_in_sync()), asyncio.create_task(stop.wait())
        await asyncio.wait([ready, asked], return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            _tell(guide(group, await ready))
            await asked
        ready.cancel()
    except StartError as error:
        print(f"the group does not serve: {error}", file=sys.stderr)
        return 1
    finally:
        await group.stop()
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
    return 0


def _tell(text: str) -> None:
    print(text, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 after a stop, 1 if it cannot run or does not come to serve."""
    parser = argparse.ArgumentParser(prog="python -m mqcore.testing.group", description="A failover group to try out.")
    parser.add_argument("directory", type=Path, help="where stores, data of etcd and logs are")
    parser.add_argument("--namesrv-port", type=int, default=9876)
    parser.add_argument("--broker-ports", type=int, nargs=3, default=[10911, 10921, 10931], metavar="PORT")
    parser.add_argument(
        "--etcd-ports", type=int, nargs=3, default=[12379, 22379, 32379], metavar="PORT",
        help="each with the one behind it, for the other members",
    )  # fmt: skip
    given = parser.parse_args(argv)
    etcd = shutil.which("etcd")
    if etcd is None:
        print(NO_ETCD, file=sys.stderr)
        return 1
    group = LocalGroup(
        given.directory.absolute(), etcd,
        name_server=given.namesrv_port, brokers=given.broker_ports, engines=given.etcd_ports,
    )  # fmt: skip
    return asyncio.run(run(group))


if __name__ == "__main__":
    sys.exit(main())
