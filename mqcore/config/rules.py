"""Rules that concern more than one setting, or the inside of a text. They run on every load and every update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mqcore.address import parse_addresses
from mqcore.config.choices import BrokerRole, ClientAuth, TlsMode
from mqcore.config.credentials import parse_credentials
from mqcore.config.index import SETTINGS, find
from mqcore.config.problems import Problems
from mqcore.config.quotas import parse_quotas
from mqcore.config.table import Group, Program, Value, format_value
from mqcore.config.texts import (
    parse_affinity,
    parse_directories,
    parse_directory,
    parse_endpoints,
    parse_host,
    parse_hours,
    parse_name,
    parse_topic,
)
from mqcore.delay_levels import parse_delay_levels
from mqcore.errors import ConfigError
from mqcore.layout import CONSUME_QUEUE_UNIT, LOG_PLACES_MAX
from mqcore.process_log import parse_levels

HEADER_ALLOWANCE = (
    128 * 1024
)  # bytes of a send request that are not its body: JSON header with up to 32 KiB of properties

TLS_FILES = ("tls.server.keyPath", "tls.server.certPath", "tls.client.keyPath", "tls.client.certPath")
PATHS = (
    "rocketmqHome",
    "storePathRootDir",
    "kvConfigPath",
    "configStorePath",
    "tls.config.file",
    *TLS_FILES,
    "tls.server.trustCertPath",
    "tls.client.trustCertPath",
    "failoverEtcdCaFile",
    "failoverEtcdCertFile",
    "failoverEtcdKeyFile",
)
PATH_LISTS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")

TEXT_FORMS: dict[str, Callable[[str], object]] = {
    "bindAddress": parse_host,  # first, since addresses that were not given follow it
    "namesrvAddr": parse_addresses,
    "brokerIP1": parse_host,
    "brokerIP2": parse_host,
    "brokerName": parse_name,
    "brokerClusterName": parse_name,
    "msgTraceTopicName": parse_topic,
    "storePathRootDir": parse_directory,
    "failoverEtcd": parse_endpoints,
    "messageDelayLevel": parse_delay_levels,
    "deleteWhen": parse_hours,
    "workerCpuAffinity": parse_affinity,
    "quotas": parse_quotas,
    "logLevels": parse_levels,
    "innerClientAuthenticationCredentials": parse_credentials,
}


def settle(
    values: dict[str, Value], program: Program, where: Mapping[str, str], problems: Problems | None = None
) -> list[str]:
    """Check *values* (by property; every used setting is there) and bend in place what RocketMQ bends.

    Returns a warning for each value that was bent. *where* tells where a value came from; what is missing there is a
    default. Raises ConfigError for all values that cannot stand by themselves, else for all that cannot together.
    Settled values are left as they are. *problems* are those that were found before.
    """
    problems = Problems() if problems is None else problems
    check_texts(values, program, where, problems)
    problems.raise_all()
    make_absolute(values)
    for check in CHECKS[program]:
        with problems.noted():
            check(values, where)
    problems.raise_all()
    if program is not Program.BROKER:
        return []
    return [*settle_role(values, where), *round_queue_file(values, where), *raise_backoff(values, where)]


def advise(values: Mapping[str, Value], program: Program, where: Mapping[str, str]) -> list[str]:
    """What is allowed and probably not meant, in sentences."""
    if program is not Program.BROKER:
        return []
    return [*advise_on_frames(values), *advise_on_address(values, where), *advise_on_failover(values, where)]


def _refuse(name: str, values: Mapping[str, Value], where: Mapping[str, str], wanted: str) -> ConfigError:
    row = find(name)
    assert row is not None, name
    return row.error(str(values[name]), where.get(name, "default"), wanted)


def check_texts(values: Mapping[str, Value], program: Program, where: Mapping[str, str], problems: Problems) -> None:
    for name, parse in TEXT_FORMS.items():
        row = find(name)
        assert row is not None, name
        if program in row.programs:
            with problems.noted():
                try:
                    parse(str(values[name]))
                except ValueError as error:
                    raise _refuse(name, values, where, str(error)) from None


def make_absolute(values: dict[str, Value]) -> None:
    """Paths must mean the same to every process, whatever directory it is in; a leading ~ is the home directory."""
    for name in PATHS:
        if values[name]:
            values[name] = str(Path(str(values[name])).expanduser().absolute())


def settle_path_lists(values: dict[str, Value], where: Mapping[str, str]) -> None:
    """The commit log lies in at least one directory that is written to; each is made absolute."""
    splitter = str(values["multiPathSplitter"])
    found = {}
    for name in PATH_LISTS:
        try:
            found[name] = parse_directories(str(values[name]), splitter)
        except ValueError as error:
            wrong = name if splitter and "/" not in splitter else "multiPathSplitter"
            raise _refuse(wrong, values, where, str(error)) from None
        found[name] = tuple(str(Path(path).expanduser().absolute()) for path in found[name])
    if splitter in str(values["storePathRootDir"]):
        raise _refuse("storePathRootDir", values, where, f"one directory, without {splitter!r}")
    if not set(found[PATH_LISTS[0]]) - set(found[PATH_LISTS[1]]):
        raise _refuse(PATH_LISTS[0], values, where, f"a directory that is not in {PATH_LISTS[1]}")
    if len({*found[PATH_LISTS[0]], *found[PATH_LISTS[1]]}) > LOG_PLACES_MAX:
        raise _refuse(PATH_LISTS[0], values, where, f"at most {LOG_PLACES_MAX} directories, all told")
    values.update({name: splitter.join(directories) for name, directories in found.items()})


def check_port(values: Mapping[str, Value], where: Mapping[str, str]) -> None:
    """The VIP port of a broker is two below the listen port, so that 1 and 2 leave no room for it."""
    if values["listenPort"] in (1, 2):
        raise _refuse("listenPort", values, where, "0 or a port from 3 on, since the VIP port is listenPort - 2")


def check_home(values: Mapping[str, Value], where: Mapping[str, str]) -> None:
    """Without a home there is no file that says who may do what. RocketMQ does not start without one at all."""
    if values["aclEnable"] and not values["rocketmqHome"]:
        raise _refuse("rocketmqHome", values, where, "the directory with conf/plain_acl.yml, since aclEnable is true")


def check_certificates(values: Mapping[str, Value], where: Mapping[str, str]) -> None:
    """A name in a certificate that nobody has checked would let in everybody who writes himself one."""
    if not values["aclAccountByCertificate"]:
        return
    wanted: dict[str, tuple[Value, ...]] = {
        "aclEnable": (True,),
        "tls.test.mode.enable": (False,),
        "tls.server.authClient": (True,),
        "tls.server.need.client.auth": (ClientAuth.OPTIONAL, ClientAuth.REQUIRE),
    }
    for name, good in wanted.items():
        if values[name] not in good:
            words = " or ".join(map(format_value, good))
            raise _refuse(name, values, where, f"{words}, since aclAccountByCertificate is true")


def check_tls(values: Mapping[str, Value], where: Mapping[str, str]) -> None:
    """Half of what TLS needs is worse than none: RocketMQ starts, and then closes every connection that asks for it."""
    if values["tls.test.mode.enable"]:
        return
    if values["tls.server.mode"] != TlsMode.DISABLED:
        for name in TLS_FILES[:2]:
            if not values[name]:
                raise _refuse(name, values, where, "a file, since tls.test.mode.enable is false")
    for key, certificate in (TLS_FILES[:2], TLS_FILES[2:]):
        if bool(values[key]) != bool(values[certificate]):
            missing, given = (key, certificate) if values[certificate] else (certificate, key)
            raise _refuse(missing, values, where, f"a file, since {given} is given")
    if values["tls.server.need.client.auth"] == ClientAuth.REQUIRE and not values["tls.server.authClient"]:
        # RocketMQ takes any certificate then, which everybody can make: it keeps nobody out.
        raise _refuse("tls.server.authClient", values, where, "true, since tls.server.need.client.auth is require")


def check_failover(values: Mapping[str, Value], where: Mapping[str, str]) -> None:
    """What a group would be set up with, and go another way."""
    for name, needs in (
        ("failoverEtcdPassword", "failoverEtcdUser"),
        ("failoverEtcdCaFile", "failoverEtcdTls"),
        ("failoverEtcdCertFile", "failoverEtcdTls"),
        ("failoverEtcdCertFile", "failoverEtcdKeyFile"),
        ("failoverEtcdKeyFile", "failoverEtcdCertFile"),
    ):
        if values[name] and not values[needs]:
            raise _refuse(needs, values, where, f"one, since {name} is given")
    if not values["failoverEtcd"]:
        return
    because = "since failoverEtcd is given"
    if values["brokerRole"] == BrokerRole.SLAVE:
        raise _refuse("brokerRole", values, where, f"ASYNC_MASTER or SYNC_MASTER, {because}: who is slave is elected")
    if values["haMasterAddress"]:
        raise _refuse("haMasterAddress", values, where, f"nothing, {because}: the master is elected")
    for name in ("enableMultiDispatch", "enableLmq"):
        if values[name]:
            raise _refuse(
                name, values, where, f"false, {because}: what the queues of a message count is not in its log"
            )
    if not values["namesrvAddr"] and not values["fetchNamesrvAddrByAddressServer"]:
        raise _refuse(
            "namesrvAddr", values, where, f"name servers, {because}: one in each broker would know that broker alone"
        )


def check_slave(values: Mapping[str, Value], where: Mapping[str, str]) -> None:
    """A slave has an id of its own, and who has not been told one is told how."""
    if values["brokerRole"] != BrokerRole.SLAVE or values["failoverEtcd"] or int(values["brokerId"]) > 0:
        return
    own = f"an id above 0 that no other slave of {values['brokerName']} has, such as brokerId=1"
    raise _refuse("brokerId", values, where, f"{own}, since brokerRole is SLAVE")


def settle_role(values: dict[str, Value], where: Mapping[str, str]) -> list[str]:
    """A master has broker id 0 whatever the file says."""
    role, broker_id = values["brokerRole"], int(values["brokerId"])
    if values["failoverEtcd"] or role == BrokerRole.SLAVE or broker_id == 0:
        return []  # who founds a group says so with id 0; which id a broker has there, the group knows
    values["brokerId"] = 0
    return [f"brokerId: {broker_id} becomes 0, since brokerRole is {role} ({where.get('brokerId', 'default')})"]


def round_queue_file(values: dict[str, Value], where: Mapping[str, str]) -> list[str]:
    """Consume queue files hold whole units. RocketMQ rounds up in silence."""
    name = "mappedFileSizeConsumeQueue"
    size = int(values[name])
    unit_size = CONSUME_QUEUE_UNIT.size
    rounded = -(-size // unit_size) * unit_size
    if rounded == size:
        return []
    values[name] = rounded
    return [f"{name}: {size} becomes {rounded}, a multiple of {unit_size} ({where.get(name, 'default')})"]


def advise_on_frames(values: Mapping[str, Value]) -> list[str]:
    body, frame = int(values["maxMessageSize"]), int(values["frameMaxLength"])
    if body + HEADER_ALLOWANCE <= frame:
        return []
    return [f"maxMessageSize: a message of {body} bytes may not fit in a frame of frameMaxLength={frame}"]


def advise_on_address(values: Mapping[str, Value], where: Mapping[str, str]) -> list[str]:
    """An address that was found by itself may be one that nobody else can reach; a chosen one is believed."""
    if "brokerIP1" in where or values["brokerIP1"] == values["bindAddress"]:
        return []
    from mqcore.config.addresses import bridge_warning  # only a broker without brokerIP1 needs it

    warning = bridge_warning(str(values["brokerIP1"]))
    return [f"brokerIP1: {warning}"] if warning else []


def advise_on_failover(values: Mapping[str, Value], where: Mapping[str, str]) -> list[str]:
    """Configurations are shared with RocketMQ 5, where two of these mean something in a group that we do not have."""
    if values["failoverEtcd"]:
        return []
    given = [row.key for row in SETTINGS if row.group is Group.FAILOVER and row.key in where and values[row.key]]
    return [f"{key}: it has no effect without failoverEtcd ({where[key]})" for key in given]


def raise_backoff(values: dict[str, Value], where: Mapping[str, str]) -> list[str]:
    name = "workerRestartBackoffMaxMillis"
    least, most = int(values["workerRestartBackoffMillis"]), int(values[name])
    if least <= most:
        return []
    values[name] = least
    return [f"{name}: {most} becomes {least}, the first pause ({where.get(name, 'default')})"]


Check = Callable[[dict[str, Value], Mapping[str, str]], None]

CHECKS: dict[Program, tuple[Check, ...]] = {
    Program.BROKER: (
        settle_path_lists, check_port, check_home, check_tls, check_certificates, check_failover, check_slave,
    ),
    Program.NAMESRV: (check_home, check_tls),
}  # fmt: skip
"""What settings must be to one another, by program. Each raises ConfigError."""
