"""The command ``mqcore`` and the options that all its commands share."""

from __future__ import annotations

import logging
import sys

import click

from mqcore.admin.consume_command import consume
from mqcore.admin.running import Common
from mqcore.admin.send_command import send
from mqcore.admin.topic_commands import topic
from mqcore.version import __version__

DEFAULT_NAME_SERVER = "127.0.0.1:9876"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-n",
    "--namesrv",
    envvar="NAMESRV_ADDR",
    default=DEFAULT_NAME_SERVER,
    show_default=True,
    show_envvar=True,
    help="Name servers, host:port;host:port.",
)
@click.option("-v", "--verbose", is_flag=True, help="Tell on standard error what the client does.")
@click.version_option(__version__, prog_name="mqcore")
@click.pass_context
def cli(context: click.Context, namesrv: str, verbose: bool) -> None:
    """Send, consume and look after topics of a RocketMQ cluster."""
    level = logging.INFO if verbose else logging.ERROR
    logging.basicConfig(stream=sys.stderr, level=level, format="%(levelname)s %(name)s: %(message)s")
    context.obj = Common(namesrv)


for command in (send, consume, topic):
    cli.add_command(command)
