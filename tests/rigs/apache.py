"""Apache's own name server and broker as child processes: the referee against which mqcore is compared.

They listen on all addresses, as they always do, but are known by 127.0.0.1. Small heap; the store is where the
caller says, everything else (log, configuration, home directory) goes beside it into <store>.apache.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.waiting import wait_until

from .maven import class_path, shared_classes
from .ports import free_broker_ports, free_port
from .process import Child
from .wire import GET_BROKER_CLUSTER_INFO, SUCCESS, call, known_topics, registered_brokers, serves

# Small, and without the second compiler: a test is over before it has earned what it costs. Nor do servers make keys
# for TLS, which is half of what their start costs; who tests TLS says so behind these.
SMALL = (
    *("-Xms128m", "-Xmx640m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    "-Dtls.server.mode=disabled",
)
# Both releases free mapped files through internals that the module system of newer Javas hides.
OPEN_MODULES = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
FORGET_DEADLINE_S = 2.0
"""A name server forgets a broker as soon as its connection has gone."""

# Files of a size for tests, and patience: a busy machine must not make the broker refuse messages.
TEST_PROPERTIES = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 50_000),
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}

# Until the first of these times is over the 5.x broker's service for the metrics of transactions keeps a core busy: 3 s
# by default. With each of the second, a second by default, it copies its timer wheel of 39 MB, for half a second.
PROPERTIES_OF_5 = {"transactionMetricFlushInterval": "200", "timerFlushIntervalMs": "60000"}

LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d %p %t %logger{{20}} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a Java properties file; values must not need escapes."""
    for name, value in properties.items():
        if "\\" in value or "\n" in value:
            raise ValueError(f"property {name} needs escapes: {value!r}")
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


def write_home(home: Path, names: Sequence[str]) -> Path:
    """Make a distribution's home directory with nothing in it but the logging configuration of the named programs."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    # Programs that start at the same moment would all try to make this one, and one would complain.
    (home / "logs" / "rocketmqlogs").mkdir(parents=True, exist_ok=True)
    for name in names:
        (conf / f"logback_{name}.xml").write_text(LOGBACK.format(file=home / f"{name}.log"))
    return home


def _start(main_class: str, version: str, home: Path, configuration: Path, jvm_options: Sequence[str]) -> Child:
    # Only with the options that the archive was made with.
    archive = [_archive(main_class, version)] if jvm_options == SMALL else []
    return Child(
        [
            *("java", *jvm_options, *archive, *OPEN_MODULES, *_homes(home)),
            *("-cp", class_path("server", version), main_class, "-c", configuration),
        ],
        log=home / f"{main_class.rpartition('.')[2]}.out",
    )


def _homes(home: Path) -> tuple[str, str]:
    return f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"


def _archive(main_class: str, version: str) -> str:
    """The JVM option for the archive of a server's classes, made by a start that fails: its port is taken."""
    name = f"{main_class.rpartition('.')[2]}-{version}"
    with socket.create_server(("0.0.0.0", 0)) as taken, tempfile.TemporaryDirectory() as directory:
        home = write_home(Path(directory), ["broker", "namesrv"])
        properties = {
            "listenPort": str(taken.getsockname()[1]),
            "namesrvAddr": "127.0.0.1:1",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            **TEST_PROPERTIES,
            "storePathRootDir": f"{directory}/store",
            "storePathCommitLog": f"{directory}/store/commitlog",
        }
        configuration = write_properties(home / "rehearsal.conf", properties)
        run = [*_homes(home), main_class, "-c", configuration]
        return shared_classes(name, (*SMALL, *OPEN_MODULES), class_path("server", version), run)


class ApacheNamesrv:
    """Apache's name server of one release."""

    def __init__(
        self, version: str, directory: Path, *, port: int | None = None, jvm_options: Sequence[str] = SMALL
    ) -> None:
        self.version = version
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        home = write_home(directory, ["namesrv"])
        properties = {"listenPort": str(self.port), "kvConfigPath": str(directory / "kvConfig.json")}
        configuration = write_properties(directory / "namesrv.conf", properties)
        self.child = _start("org.apache.rocketmq.namesrv.NamesrvStartup", version, home, configuration, jvm_options)

    def stop(self) -> None:
        """End it in order. A JVM ended by SIGTERM exits with 143."""
        self.child.stop(STOP_DEADLINE_S)

    def kill(self) -> None:
        self.child.kill()


class SpareNamesrvs:
    """Name servers whose broker has ended, for who would start one: that costs as much as the start of a broker.

    They are as new: they know of no broker and no topic. What else can be changed in one is left alone by who takes it,
    or is said (``ApacheServer``).
    """

    def __init__(self) -> None:
        self._spares: list[ApacheNamesrv] = []

    def take(self, version: str) -> ApacheNamesrv | None:
        """One of these that has forgotten everything, if there is one."""
        for spare in self._spares:
            if spare.version == version:
                with contextlib.suppress(AssertionError):
                    wait_until(lambda spare=spare: is_as_new(spare.address), FORGET_DEADLINE_S)  # type: ignore[misc]
                    self._spares.remove(spare)
                    return spare
        return None

    def give(self, namesrv: ApacheNamesrv) -> None:
        self._spares.append(namesrv)

    def pids(self) -> list[int]:
        return [spare.child.pid for spare in self._spares]

    def close(self) -> None:
        for spare in self._spares:
            spare.kill()
        self._spares.clear()


def is_as_new(name_server: str) -> bool:
    return not registered_brokers(name_server) and not known_topics(name_server)


_spares: SpareNamesrvs | None = None


@contextlib.contextmanager
def passing_name_servers_on() -> Iterator[SpareNamesrvs]:
    """While this lasts, the name servers of those that end are taken by those that start."""
    global _spares
    _spares = SpareNamesrvs()
    try:
        yield _spares
    finally:
        _spares.close()
        _spares = None


class ApacheBroker:
    """Apache's broker of one release with the store *store_dir*, registered at *name_server*.

    *properties* add to and override the ones that make it small and local. Ports: listen, listen - 2, listen + 1.
    """

    def __init__(
        self,
        version: str,
        store_dir: Path,
        name_server: str,
        properties: Mapping[str, str] | None = None,
        *,
        jvm_options: Sequence[str] = SMALL,
    ) -> None:
        self.version = version
        self.store_dir = store_dir
        self.name_server = name_server
        port = int((properties or {}).get("listenPort", 0)) or free_broker_ports().listen
        self.address = f"127.0.0.1:{port}"
        home = write_home(store_dir.with_name(store_dir.name + ".apache"), ["broker"])
        configuration = write_properties(
            home / "broker.conf",
            {
                "namesrvAddr": name_server,
                "brokerName": "broker-a",
                "brokerClusterName": "DefaultCluster",
                "brokerId": "0",
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                "storePathCommitLog": str(store_dir / "commitlog"),
                **TEST_PROPERTIES,
                **(PROPERTIES_OF_5 if version.startswith("5.") else {}),
                **(properties or {}),
                "listenPort": str(port),
                "storePathRootDir": str(store_dir),
            },
        )
        self.child = _start("org.apache.rocketmq.broker.BrokerStartup", version, home, configuration, jvm_options)

    @property
    def pid(self) -> int:
        return self.child.pid

    def await_service(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait until the broker is registered and answers. Raises AssertionError if it does not in time."""
        wait_until(
            lambda: not self.child.is_alive or serves(self.name_server, self.address),
            deadline_s=deadline_s,
            describe=f"Apache's broker {self.version} at {self.address} serves",
        )
        if not self.child.is_alive:
            raise self.child.error("ended while it started")

    def cpu_time_s(self) -> float:
        """User and system time so far, seconds."""
        return self.child.cpu_time_s()

    def stop(self) -> None:
        """End it in order: it unregisters, flushes and removes its abort file."""
        self.child.stop(STOP_DEADLINE_S)

    def kill(self) -> None:
        self.child.kill()


class ApacheServer:
    """A name server and one broker of a release, with the same face as MqcoreBroker.

    Who changes more of the name server than what brokers register has one of his own: *alters_name_server*.
    """

    def __init__(
        self,
        version: str,
        store_dir: Path,
        properties: Mapping[str, str] | None = None,
        *,
        jvm_options: Sequence[str] = SMALL,
        alters_name_server: bool = False,
    ) -> None:
        self.version = version
        self.store_dir = store_dir
        self._properties = dict(properties or {})
        self._jvm_options = jvm_options
        self._is_passed_on = False
        self._spares = None if alters_name_server else _spares
        spare = self._spares.take(version) if self._spares is not None else None
        self.namesrv = spare or ApacheNamesrv(version, store_dir.with_name(store_dir.name + ".namesrv"))
        self.name_server = self.namesrv.address
        try:
            wait_until(self._name_server_answers, deadline_s=START_DEADLINE_S, describe="Apache's name server answers")
            self.broker = self._start_broker()
        except BaseException:
            self.namesrv.kill()
            raise

    def _name_server_answers(self) -> bool:
        if not self.namesrv.child.is_alive:
            raise self.namesrv.child.error("ended while it started")
        try:
            return call(self.name_server, GET_BROKER_CLUSTER_INFO).code == SUCCESS
        except OSError:
            return False

    def _start_broker(self, deadline_s: float = START_DEADLINE_S) -> ApacheBroker:
        broker = ApacheBroker(
            self.version, self.store_dir, self.name_server, self._properties, jvm_options=self._jvm_options
        )
        try:
            broker.await_service(deadline_s)
        except BaseException:
            broker.kill()
            raise
        return broker

    @property
    def broker_address(self) -> str:
        return self.broker.address

    @property
    def apache_version(self) -> str:
        return self.version

    def pids(self) -> list[int]:
        return [self.namesrv.child.pid, self.broker.pid]

    def cpu_time_s(self) -> float:
        """User and system time of the broker so far, seconds; the name server does not count."""
        return self.broker.cpu_time_s()

    def restart(self) -> None:
        """Stop the broker in order and start it again on the same store and port, under the same name server."""
        self.broker.stop()
        wait_until(
            lambda: self.broker.address not in str(registered_brokers(self.name_server)), describe="broker unregistered"
        )
        self.start_again()

    def start_again(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Start the broker again on the same store and port, after broker.stop() or broker.kill()."""
        self._properties["listenPort"] = self.broker.address.rpartition(":")[2]
        self.broker = self._start_broker(deadline_s)

    def stop(self) -> None:
        """End both in order, the broker first."""
        try:
            self.broker.stop()
        finally:
            if not self._passes_name_server_on():
                self.namesrv.stop()

    def kill(self) -> None:
        """End both by SIGKILL."""
        self.broker.kill()
        if not self._passes_name_server_on():
            self.namesrv.kill()

    def _passes_name_server_on(self) -> bool:
        """Give the name server to others, once; whether it is theirs, and not to be ended."""
        if self._spares is not None and not self._is_passed_on and self.namesrv.child.is_alive:
            self._spares.give(self.namesrv)
            self._is_passed_on = True
        return self._is_passed_on

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
