"""What every test stands under: which implementation runs, and that nothing is left behind.

A test that leaves a child process or a listening socket fails, though not by itself: the check runs behind each module,
and behind the whole run for what lives as long as that (the interoperability tests' tools).
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from mqcore import cause_log, clock
from tests.rigs import SHORT_DELAYS, ApacheServer, RunningBroker, maven, nursery, start_broker_under_test
from tests.rigs.apache import passing_name_servers_on
from tests.suite.leftovers import kept, long_lived
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
FAST = ROOT / "mqcore" / "_fast"
PURE = os.environ.get("MQ_PURE") == "1"
ENDING_S = 30.0
# Their tools are fixtures of the session.
LONG_LIVED = "interop"

_tests = itertools.count(1)

# A busy machine may take any time for an example. Other examples in each run, by its seed; more of them with the
# profile thorough. Where the environment says CI, Hypothesis itself would take the same ones each time.
settings.register_profile(
    "everyday",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=False,
)
settings.register_profile("thorough", settings.get_profile("everyday"), max_examples=1_000)
settings.load_profile("everyday")


def missing_extensions() -> list[str]:
    """The names of extensions that have a source and cannot be imported."""
    names = sorted(".".join(source.relative_to(ROOT).with_suffix("").parts) for source in FAST.rglob("*.pyx"))
    return [name for name in names if importlib.util.find_spec(name) is None]


def pytest_configure(config: pytest.Config) -> None:
    # A shell makes its background jobs ignore interrupts, nohup makes them ignore that the terminal is gone, and so
    # would the brokers that tests stop by these signals.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    missing = missing_extensions()
    if missing and not PURE:
        raise pytest.UsageError(
            f"extensions are not built: {', '.join(missing)}; run python setup.py build_ext --inplace, "
            "or set MQ_PURE=1 to test the Python twins alone"
        )


def pytest_report_header(config: pytest.Config) -> str:
    from mqcore.store import codec

    variants = {"MQ_SANITIZE": ", sanitized build", "MQ_DEBUG": ", debug build"}
    build = "the Cython extensions" + next((what for name, what in variants.items() if os.environ.get(name) == "1"), "")
    kind = "the Python twins (MQ_PURE=1)" if codec.PURE else build
    note = ", some extensions are not built" if missing_extensions() else ""
    return f"mqcore: {kind}, crc32 on {codec.crc32_implementation()}{note}"


def child_processes() -> dict[int, str]:
    """This process's children, zombies too, and those that were forked for it: pid to what it is."""
    found = {}
    forked = [child for pid in nursery.pids if psutil.pid_exists(pid) for child in psutil.Process(pid).children()]
    for child in (*psutil.Process().children(), *forked):
        with contextlib.suppress(psutil.NoSuchProcess):
            try:
                what = " ".join(child.cmdline()) or child.name()
            except psutil.ZombieProcess:  # ended, and nobody has waited for it
                what = "zombie"
            found[child.pid] = f"process {child.pid} ({child.status()}): {what}"
    return found


def listening_sockets() -> dict[int, str]:
    """This process's listening sockets: descriptor to address."""
    found = {}
    for link in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(link.name)
        try:
            if not str(link.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as copy:
                if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found[descriptor] = f"listening socket {copy.getsockname()}"
        except OSError:
            # Closed since it was listed: the listing itself was one of them.
            continue
    return found


def leftovers(processes_before: dict[int, str], sockets_before: dict[int, str]) -> list[str]:
    kept = {number for numbers in long_lived for number in numbers()}
    processes = [text for pid, text in child_processes().items() if pid not in {*processes_before, *kept}]
    return processes + [text for fd, text in listening_sockets().items() if fd not in {*sockets_before, *kept}]


def leaves_nothing_behind(where: str) -> Iterator[None]:
    """The body of a fixture that fails if children or listening sockets of its scope are still there at its end."""
    before = child_processes(), listening_sockets()
    yield
    # What was told to end may take a moment to do so.
    if leftovers(*before):
        wait_until(lambda: not leftovers(*before), ENDING_S, f"nothing left behind by {where}: {leftovers(*before)}")


@pytest.fixture(autouse=True)
def no_warning_is_kept_back_because_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead_ms = next(_tests) * int(cause_log.INTERVAL_S * 1000)
    monkeypatch.setattr(cause_log, "monotonic_ms", lambda: clock.monotonic_ms() + ahead_ms)


@pytest.fixture(scope="session", autouse=True)
def session_leaves_nothing_behind() -> Iterator[None]:
    yield from leaves_nothing_behind("this run")


@pytest.fixture(scope="session", autouse=True)
def name_servers_are_passed_on(session_leaves_nothing_behind: None) -> Iterator[None]:
    with passing_name_servers_on() as spares:
        long_lived.append(spares.pids)
        yield
        long_lived.remove(spares.pids)


@pytest.fixture(scope="session", autouse=True)
def brokers_are_forked(session_leaves_nothing_behind: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with nursery.nursing(tmp_path_factory.getbasetemp() / "nursery.out") as pids:
        long_lived.append(lambda: pids)
        yield


@pytest.fixture(scope="module", autouse=True)
def module_leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    if LONG_LIVED in request.path.parts:
        yield
    else:
        yield from leaves_nothing_behind(request.path.name)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The broker under test, started once for all modules of this process that can share it.

    Tests make topics of their own (``make_topic``) and groups, named after them, and leave settings, permissions and
    other people's messages alone. Delays are short: SHORT_DELAYS.
    """
    with start_broker_under_test(tmp_path_factory.mktemp("shared") / "store", SHORT_DELAYS) as broker, kept(broker):
        yield broker


@pytest.fixture(scope="module")
def shared_apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """Apache's name server and broker, release 4.9.8, for a module whose tests can share it; as above.

    Not for the whole run: with nothing to do it takes 3 % of a processor, and within a minute more than a start.
    """
    if missing := maven.missing_tools():
        pytest.skip(missing)
    with ApacheServer("4.9.8", tmp_path_factory.mktemp("shared_apache") / "store", SHORT_DELAYS) as apache:
        yield apache
