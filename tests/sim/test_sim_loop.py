"""The ground of all simulations: time that goes on when nobody has anything to do, wires, and the same run again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from mqcore import clock
from mqcore.codes import RequestCode
from mqcore.errors import RemotingConnectError, RemotingSendError, RemotingTimeoutError
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.client import RemotingClient
from mqcore.transport.connection import Connection
from mqcore.transport.server import RemotingServer
from tests.sim.loop import Host, NothingLeftError, NoTimePassesError, VirtualLoop, run
from tests.sim.network import Network
from tests.sim.schedules import Chaos, Habits
from tests.sim.world import World, simulate

ROOT = Path(__file__).resolve().parent.parent.parent
SEEDS_COMPARED = 2


def in_loop(work: Callable[[], Coroutine[Any, Any, Any]], seed: int = 0, **changes: Any) -> Any:
    return run(VirtualLoop(seed, **changes), work())


def test_a_day_passes_at_once_and_all_clocks_show_it() -> None:
    loop = VirtualLoop(1, late_max_s=0)

    async def sleep() -> tuple[float, int]:
        begin_ms = clock.now_ms()
        await asyncio.sleep(86_400)
        return loop.time(), clock.now_ms() - begin_ms

    with clock.stand_in(loop.time, 1_000_000):
        assert run(loop, sleep()) == (86_400, 86_400_000)


def test_timers_for_the_same_moment_go_off_in_any_order_that_the_seed_says() -> None:
    async def order() -> tuple[int, ...]:
        gone: list[int] = []
        for number in range(3):
            asyncio.get_running_loop().call_later(1, gone.append, number)
        await asyncio.sleep(2)
        return tuple(gone)

    orders = [in_loop(order, seed) for seed in range(60)]
    assert len(set(orders)) == 6
    assert orders == [in_loop(order, seed) for seed in range(60)]


def test_who_waits_for_ever_and_who_never_waits_are_found() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(NothingLeftError):
        in_loop(asyncio.Event().wait)
    with pytest.raises(NoTimePassesError):
        in_loop(spin)


def test_an_exception_that_nobody_took_ends_the_run(root: Path) -> None:
    async def play(world: World) -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 // 0)
        await asyncio.sleep(10)

    with pytest.raises(RuntimeError) as caught:
        simulate(1, root, play)
    assert "ZeroDivisionError" in "".join(caught.value.__notes__)


class Two:
    """A calling and an answering host."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.network = Network(loop, 7)
        self.here: Host = self.network.host("here", "10.0.0.1")
        self.there: Host = self.network.host("there", "10.0.0.2")
        self.seen: list[int] = []
        self.closed: list[Connection] = []
        self.server = RemotingServer("10.0.0.2", 9, self._handle, on_close=self.closed.append)

    async def start(self) -> None:
        await self.there.spawn(self.server.start())
        self.client = self.here.run(RemotingClient)

    async def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.seen.append(command.code)
        return command.reply(body=command.body)

    async def ask(self, body: bytes = b"x", timeout_s: float = 3.0) -> bytes:
        command = RemotingCommand(RequestCode.HEART_BEAT, body=body)
        return (await self.here.spawn(self.client.invoke("10.0.0.2:9", command, timeout_s))).body


def two(play: Callable[[Two], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        made = Two()
        await made.start()
        await play(made)

    in_loop(inside)


def test_bytes_arrive_whole_and_in_order_after_a_while() -> None:
    async def play(wire: Two) -> None:
        bodies = [bytes([number]) * (number * 5000 + 1) for number in range(20)]
        assert await asyncio.gather(*map(wire.ask, bodies)) == bodies
        assert 0.0002 <= wire.loop.time() <= 0.1

    two(play)


def test_a_connection_that_breaks_fails_its_calls_at_both_ends() -> None:
    async def play(wire: Two) -> None:
        await wire.ask()
        call = asyncio.create_task(wire.ask())
        await asyncio.sleep(0)
        wire.network.cut(wire.here, wire.there)
        with pytest.raises(RemotingSendError):
            await call
        await asyncio.sleep(0.1)
        assert len(wire.closed) == 1
        assert await wire.ask() == b"x"

    two(play)


def test_a_lost_connection_is_noticed_by_time_outs_only() -> None:
    async def play(wire: Two) -> None:
        await wire.ask()
        wire.network.lose(wire.here, wire.there)
        begin_s = wire.loop.time()
        with pytest.raises(RemotingTimeoutError):
            await wire.ask(timeout_s=3.0)
        assert 3.0 <= wire.loop.time() - begin_s < 3.01
        assert not wire.closed
        assert await wire.ask() == b"x"
        await asyncio.sleep(121)
        assert len(wire.closed) == 2  # both were idle for too long

    two(play)


def test_what_stalls_comes_later_and_nothing_else_does() -> None:
    async def play(wire: Two) -> None:
        await wire.ask()
        wire.network.stall(wire.here, wire.there)
        call = asyncio.create_task(wire.ask(timeout_s=30))
        await asyncio.sleep(10)
        assert not call.done()
        wire.network.heal(wire.here, wire.there)
        assert await call == b"x"
        assert 10 < wire.loop.time() < 10.1

    two(play)


@pytest.mark.parametrize("silently", [False, True], ids=["process", "machine"])
def test_the_dead_say_nothing_and_refuse_only_while_their_machine_lives(silently: bool) -> None:
    async def play(wire: Two) -> None:
        await wire.ask()
        wire.network.kill(wire.there, silently=silently)
        begin_s = wire.loop.time()
        with pytest.raises(RemotingTimeoutError if silently else RemotingSendError):
            await wire.ask()
        with pytest.raises(RemotingConnectError):
            await wire.ask()
        waited_s = wire.loop.time() - begin_s
        assert waited_s == pytest.approx(6.0, abs=0.1) if silently else waited_s < 0.1

    two(play)


# The same seed is the same run.


async def some_chaos(world: World) -> None:
    await world.start(brokers=2, topics={"T": 2}, messageDelayLevel="1s 5s 10s 30s")
    await Chaos(world, settings={"orderly": world.random.random() < 0.5}, habits=Habits(fails=0.2)).play()


def events_of(seed: int, root: Path) -> list[str]:
    """When who sent something to whom."""
    events: list[str] = []

    async def play(world: World) -> None:
        world.network.on_send = lambda one, other: events.append(f"{world.now_s} {one.name} {other.name}")
        await some_chaos(world)

    simulate(seed, root, play)
    return events


def test_a_seed_gives_the_same_run_in_another_process_with_other_hashes(root: Path) -> None:
    program = (
        "import sys, pathlib, tests.sim.test_sim_loop as here\n"
        f"for seed in range({SEEDS_COMPARED}):\n"
        "    print(*here.events_of(seed, pathlib.Path(sys.argv[1])), sep='\\n')\n"
    )
    ours = [event for seed in range(SEEDS_COMPARED) for event in events_of(seed, root)]
    assert len(ours) > 100 * SEEDS_COMPARED
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.split("\n")[:-1] == ours
