"""Groups that elect their master: the engine, and what an acknowledgement is worth.

Names that RocketMQ 5 has for the same thing are its names; it elects by controllers, which we have not.
"""

from __future__ import annotations

from mqcore.config.table import SECRET, Group, Program, Setting, Unit, flag, in_group, number, text
from mqcore.layout import GROUP_MEMBERS_MAX


def _within(row: Setting) -> Setting:
    """*row* named without the prefix that the group has already."""
    return row._replace(name=row.name.removeprefix("failover_"))


FAILOVER = (
    text(
        "failoverEtcd",
        "",
        "etcd's addresses, host:port separated by commas: brokers of one name elect their master, and each copies its"
        " log; empty: no group",
    ),
    text("failoverEtcdUser", "", "user of etcd; empty: none"),
    text("failoverEtcdPassword", "", "password of that user", SECRET),
    flag("failoverEtcdTls", False, "calls to etcd have TLS, and its certificate is checked"),
    text(
        "failoverEtcdCaFile",
        "",
        "PEM file with the authorities of etcd's certificate; empty: those that the system trusts",
    ),
    text("failoverEtcdCertFile", "", "PEM file with the certificate that is shown to etcd"),
    text("failoverEtcdKeyFile", "", "PEM file with the private key of that certificate"),
    number(
        "failoverLeaseSeconds",
        3,
        "a broker that has not said for so long that it is there counts as gone, and another may stand for its place",
        unit=Unit.SECONDS,
        minimum=2,
        maximum=600,
    ),
    number(
        "minInSyncReplicas",
        1,
        "with fewer brokers in sync, the master's included, sends are refused",
        minimum=1,
        maximum=GROUP_MEMBERS_MAX - 1,
    ),
    number(
        "haMaxTimeSlaveNotCatchup",
        5_000,
        "a slave that has not had all that its master has for so long is no longer in sync",
        unit=Unit.MS,
        minimum=100,
    ),
    flag("haAckFlushed", False, "a slave acknowledges what its disk has, and not what its kernel has"),
    flag(
        "enableElectUncleanMaster",
        False,
        "when all that are in sync are gone, another may be master: what it lacks is lost",
    ),
    number("failoverPriority", 0, "of brokers that have the same log, the one with the greatest stands first"),
)

ROWS = in_group(Group.FAILOVER, map(_within, FAILOVER), Program.BROKER)
