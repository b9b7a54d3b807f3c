"""``mqcore console``: the pages for operators."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mqcore.admin.output import talk
from mqcore.admin.running import EXIT_ERROR, Common, fail
from mqcore.config.passwords import CONSOLE_PASSWORD_VARIABLE, read_password
from mqcore.console.options import PASSWORD, PORT_DEFAULT, ConsoleOptions, password_for
from mqcore.errors import ConfigError
from mqcore.transport.exposure import is_loopback

EXTRA_PACKAGES = ("jinja2", "markupsafe", "starlette", "uvicorn", "h11", "anyio")
HOST_DEFAULT = "127.0.0.1"


@click.command()
@click.option("--host", default=HOST_DEFAULT, show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT_DEFAULT, show_default=True, help="0: any free one.")
@click.option("--write", is_flag=True, help="Allow changes: test messages, resets of offsets, dead letters sent again.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Ask for the password in the first line of this file; or set MQCORE_CONSOLE_PASSWORD.",
)
@click.option("--allow-host", "allowed", multiple=True, metavar="NAME", help="A name by which browsers reach it.")
@click.option("--certificate", type=click.Path(path_type=Path, exists=True), help="Serve TLS with it (PEM).")
@click.option("--key", type=click.Path(path_type=Path, exists=True), help="Its key (PEM), if it is in another file.")
@click.pass_obj
def console(
    common: Common,
    host: str,
    port: int,
    write: bool,
    password_file: Path | None,
    allowed: tuple[str, ...],
    certificate: Path | None,
    key: Path | None,
) -> None:
    """Serve the console: pages about the cluster, for a browser. Read-only without --write.

    Beyond loopback it asks for a password, and makes one up, printed once, if none is given.
    """
    if key is not None and certificate is None:
        raise click.UsageError("--key needs --certificate")
    try:
        from mqcore.console.serving import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA_PACKAGES:
            raise
        talk(f"mqcore: the console needs the package {error.name}, which comes with mqcore[console]")
        raise SystemExit(EXIT_ERROR) from error

    def on_ready(settled: ConsoleOptions) -> None:
        if is_made_up:
            talk(f"password: {settled.password}")
        if settled.password is not None and not settled.has_tls and not is_loopback(settled.host):
            talk("warning: without --certificate the password can be read on the way to here")
        talk(f"console: {settled.url} ({'changes allowed' if settled.may_write else 'read-only'})")

    try:
        given = read_password(PASSWORD, password_file, os.environ.get(CONSOLE_PASSWORD_VARIABLE))
        password, is_made_up = password_for(host, given)
        serve(common.client, ConsoleOptions(host, port, write, password, allowed, certificate, key), on_ready)
    except ConfigError as error:
        fail(error)
    except KeyboardInterrupt:
        pass  # that is how it is stopped
