"""``mqcore systemd-unit``: the unit of a broker or a name server, to be put into /etc/systemd/system."""

from __future__ import annotations

import re
import sys

import click

from mqcore.admin.output import talk
from mqcore.admin.systemd_unit import Server, Unit, problem_with

USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
MEMORY = re.compile(r"[1-9][0-9]*[KMGT]?|[1-9][0-9]?%")


def path_of(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Check a path that goes into the unit."""
    if value is not None and (problem := problem_with(value)):
        raise click.BadParameter(f"got {value!r}, {problem}")
    return value


def user_of(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not USER.fullmatch(value):
        raise click.BadParameter(f"got {value!r}, wanted the name of a user of the system")
    return value


def memory_of(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not MEMORY.fullmatch(value):
        raise click.BadParameter(f"got {value!r}, wanted bytes with K, M, G or T, or a percentage, as in 4G")
    return value


@click.command("systemd-unit")
@click.argument("server", type=click.Choice([server.value for server in Server]), default=Server.BROKER.value)
@click.option("--config", callback=path_of, help="Its property file; by default /etc/mqcore/SERVER.conf.")
@click.option("--state", callback=path_of, help="Where it keeps what it writes; by default /var/lib/mqcore/SERVER.")
@click.option("--user", default="mqcore", show_default=True, callback=user_of, help="User and group that run it.")
@click.option("--memory", callback=memory_of, help="Most memory that it may take, page cache included, as in 4G.")
@click.option("--python", default=sys.executable, callback=path_of, help="The interpreter that has mqcore; this one.")
def systemd_unit(
    server: str, config: str | None, state: str | None, user: str, memory: str | None, python: str
) -> None:
    """Print a unit for systemd, hardened, for a broker or a name server (namesrv)."""
    kind = Server(server)
    unit = Unit(kind, python, config or kind.config, state or kind.state, user, memory)
    click.echo(unit.text(), nl=False)
    if unit.is_hidden:
        talk(
            f"{python} lies in a home, where services see nothing: this unit lets the service read homes. "
            "Better install mqcore in /opt, say, and name that one: --python /opt/mqcore/bin/python"
        )
