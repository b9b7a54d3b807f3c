"""The command ``mqcore`` and the options that all its commands share."""

from __future__ import annotations

import logging
import sys

import click

from mqcore.admin.backup_commands import backup, restore_command
from mqcore.admin.bench_commands import bench
from mqcore.admin.cluster_commands import broker, cluster, namesrv, producer
from mqcore.admin.connection import CONTEXT_VARIABLE, DEFAULT_NAME_SERVER
from mqcore.admin.console_command import console
from mqcore.admin.consume_command import consume
from mqcore.admin.context_commands import context as context_command
from mqcore.admin.dlq_commands import dlq
from mqcore.admin.doctor_command import doctor
from mqcore.admin.explain_command import explain
from mqcore.admin.group_commands import group
from mqcore.admin.ha_commands import ha
from mqcore.admin.message_commands import message
from mqcore.admin.offset_commands import lag, offset
from mqcore.admin.running import Common
from mqcore.admin.send_command import send
from mqcore.admin.shell_commands import completion, man
from mqcore.admin.store_commands import store
from mqcore.admin.systemd_command import systemd_unit
from mqcore.admin.top_command import top
from mqcore.admin.topic_commands import topic
from mqcore.admin.trace_command import trace
from mqcore.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-n",
    "--namesrv",
    metavar="HOST:PORT;...",
    help="Name servers. Without it: --context, NAMESRV_ADDR, the context in use, the file that MQCORE_CONFIG names, "
    f"and at last {DEFAULT_NAME_SERVER}.",
)
@click.option("--context", "context_name", metavar="NAME", help=f"A cluster of mqcore context; or {CONTEXT_VARIABLE}.")
@click.option("-v", "--verbose", is_flag=True, help="Tell on standard error what the client does.")
@click.version_option(__version__, prog_name="mqcore")
@click.pass_context
def cli(context: click.Context, namesrv: str | None, context_name: str | None, verbose: bool) -> None:
    """Send, consume, and look after a RocketMQ cluster.

    Data goes to standard output, talk to standard error. Exit codes: 0 all well, 1 error, 2 wrong usage, 3 not found,
    4 done in part.
    """
    level = logging.INFO if verbose else logging.ERROR
    logging.basicConfig(stream=sys.stderr, level=level, format="%(levelname)s %(name)s: %(message)s")
    context.obj = Common(namesrv, context_name)


COMMANDS = (
    send, consume, topic, group, offset, lag, message, dlq, cluster, broker, ha, backup, restore_command, store,
    namesrv, producer, doctor, systemd_unit, explain, context_command, trace, bench, top, console, completion, man,
)  # fmt: skip

for command in COMMANDS:
    cli.add_command(command)
