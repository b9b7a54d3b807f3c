"""The rows that RocketMQ does not have: processes, the embedded name server, and bounds on memory."""

from __future__ import annotations

from mqcore.config.defaults import hot_bytes
from mqcore.config.table import (
    BY_BROKER,
    BY_HA,
    BY_NAMESRV,
    BY_PULL,
    BY_SEND,
    BY_WORKERS,
    LONG,
    Group,
    Program,
    Setting,
    Unit,
    choice,
    flag,
    in_group,
    number,
    text,
)
from mqcore.layout import PULL_WORKERS_MAX, SEND_WORKERS_MAX
from mqcore.process_log import DEFAULT_LEVELS, LogFormat

BOTH = (Program.BROKER, Program.NAMESRV)


def _shared(row: Setting) -> Setting:
    return row._replace(programs=BOTH)


OWN = (
    _shared(text("bindAddress", "0.0.0.0", "address that the ports are opened on")),
    _shared(
        choice(
            "logFormat",
            LogFormat.TEXT,
            "how a line on standard error looks: text, or a JSON object with time, level, process, pid, logger, event, "
            "facts and exception",
        )
    ),
    _shared(
        text(
            "logLevels",
            DEFAULT_LEVELS,
            "what is logged: DEBUG, INFO, WARNING, ERROR or CRITICAL and above, for all or a module and what is below "
            "it, separated by ;, as in INFO;mqcore.broker=DEBUG; the reput worker goes by what its start has found",
            BY_BROKER | BY_NAMESRV | BY_WORKERS,
        )
    ),
    text(
        "aclPlainFile",
        "conf/plain_acl.yml",
        "the file of accounts under rocketmqHome that new accounts are written to; what RocketMQ's JVM calls "
        "rocketmq.acl.plain.file",
    ),
    flag(
        "aclChangesNeedAdmin",
        True,
        "only accounts with admin may change accounts and white addresses; off, every account may, as in RocketMQ, and "
        "may so make itself an admin",
    ),
    flag(
        "aclAccountByCertificate",
        False,
        "requests without a key are from the account whose accessKey is the common name of the client's certificate, "
        "and need no signature; the ports must ask for certificates and check them (tls.server.need.client.auth, "
        "tls.server.authClient)",
    ),
    number(
        "namesrvListenPort", 9876, "port of the name server inside the broker; 0 takes any free port", maximum=65_535
    ),
    number(
        "sendWorkerNums",
        1,
        "processes that accept connections and append messages",
        minimum=1,
        maximum=SEND_WORKERS_MAX,
    ),
    number("pullWorkerNums", 1, "processes that serve pulls", minimum=1, maximum=PULL_WORKERS_MAX),
    text(
        "workerCpuAffinity",
        "",
        "processors that a kind of worker may run on: kind=list separated by ; as in send=0;pull=1,3-5",
    ),
    number(
        "workerRestartBackoffMillis",
        100,
        "pause before a worker that died is started again; doubles each time",
        BY_BROKER,
        unit=Unit.MS,
        minimum=1,
    ),
    number(
        "workerRestartBackoffMaxMillis",
        10_000,
        "longest pause before a worker is started again",
        BY_BROKER,
        unit=Unit.MS,
        minimum=1,
    ),
    number(
        "pullHoldMaxMillis",
        60_000,
        "a pull that finds nothing waits no longer than this, whatever the client asks (RocketMQ's ask for 15 to 20 s);"
        " then it is answered that there is nothing, and the client asks again",
        BY_BROKER,
        unit=Unit.MS,
        minimum=1,
    ),
    number(
        "subscriptionConflictMillis",
        90_000,
        "members of a group that subscribe differently for so long are reported; a change of a group member by member"
        " should take less",
        BY_BROKER | LONG,
        unit=Unit.MS,
    ),
    number(
        "commitLogHotBytes",
        hot_bytes,
        "newest part of the commit log that stays in the page cache; what is older leaves it once it is on disk and"
        " behind every group that reads. 0 leaves all to the kernel",
        LONG,
        unit=Unit.BYTES,
    ),
    flag(
        "haSyncFromFirstFile",
        False,
        "a slave that has nothing is sent the whole commit log; otherwise only its last file, as RocketMQ does",
        BY_HA,
    ),
    _shared(
        number(
            "connectionWriteBufferBytes",
            8 * 2**20,
            "a connection with more bytes than this waiting to be read by its peer is closed",
            unit=Unit.BYTES,
            minimum=65_536,
            maximum=2**30,
        )
    ),
    _shared(
        number(
            "frameMaxLength",
            16 * 2**20,
            "largest frame taken from a peer; a longer one closes the connection",
            unit=Unit.BYTES,
            minimum=65_536,
            maximum=2**30,
        )
    ),
    number(
        "connectionsMax",
        0,
        "connections of clients at a time, on both ports; who comes then is closed at once. 0: as many as there are "
        "descriptors",
        BY_SEND,
    ),
    number("connectionsPerHostMax", 0, "the same from one address. 0: as many as come", BY_SEND),
    text(
        "quotas",
        "",
        "what topics, groups and clients may send and pull in a second: kind/name/direction=messages,bytes separated "
        "by ; as in topic/Orders/send=1000,1048576;client/*/pull=0,20000000, where 0 is no limit and * is each that "
        "has no entry of its own; see docs/protection.md",
        BY_BROKER | BY_SEND | BY_PULL,
    ),
    number(
        "quotaDelayMaxMillis",
        1_000,
        "a send that must wait for its quota waits no longer than this, else it is refused; a pull does, if its client "
        "lets it be held",
        BY_BROKER | BY_SEND | BY_PULL,
        unit=Unit.MS,
        maximum=60_000,
    ),
    number(
        "metricsPort",
        0,
        "port of /metrics for Prometheus, /healthz and /readyz; needs mqcore[metrics]. 0: there is none; see "
        "docs/metrics.md",
        maximum=65_535,
    ),
    text("metricsHost", "127.0.0.1", "address that metricsPort is opened on: nobody is asked there who he is"),
    number(
        "metricsTopicsMax",
        1_000,
        "topics that metrics tell apart; those that come later are summed up as (others), and counted",
        maximum=1 << 16,
    ),
    number("metricsGroupsMax", 1_000, "the same of consumer groups with their topics", maximum=1 << 20),
    number(
        "consolePort",
        0,
        "port of the console, pages for a browser, which a process of its own serves; needs mqcore[console]. 0: there "
        "is none; see docs/console.md",
        maximum=65_535,
    ),
    text(
        "consoleHost",
        "127.0.0.1",
        "address that consolePort is opened on; one that others reach needs a password",
    ),
    text(
        "consolePasswordFile",
        "",
        "file whose first line is the password that the console asks for, 8 characters or more; without it "
        "MQCORE_CONSOLE_PASSWORD, and without that nobody is asked",
    ),
    flag(
        "consoleWriteEnable",
        False,
        "the console may change things: send test messages, reset offsets, send dead letters again",
    ),
)

ROWS = in_group(Group.MQCORE, OWN, Program.BROKER)
