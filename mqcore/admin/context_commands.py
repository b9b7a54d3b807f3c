"""``mqcore context``: add, use, list, show, remove."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from mqcore.admin.contexts import (
    CONTEXT_SETTINGS,
    SECRETS,
    SHOWN_SECRET,
    ClusterContext,
    Contexts,
    check_name,
    is_open_to_others,
    load_contexts,
    setting,
)
from mqcore.admin.options import confirm, output_option, yes_option
from mqcore.admin.output import show, show_pairs, show_records, talk
from mqcore.admin.running import Common, guarded
from mqcore.client.settings.addresses import parse_addresses
from mqcore.client.settings.classes import ClientSettings
from mqcore.client.settings.configuration import configure
from mqcore.errors import ConfigError

COLUMNS = {"current": "", "name": "NAME", "nameServers": "NAME SERVERS", "description": "DESCRIPTION"}


@click.group()
def context() -> None:
    """Clusters by name: where their name servers are, and how to be let in."""


def parse_settings(pairs: tuple[str, ...], files: tuple[str, ...]) -> dict[str, Any]:
    """Read --set and --set-file; a usage error names what is wrong, and a secret is not taken from --set."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"got {pair!r}, wanted name=value", param_hint="--set")
        if name in SECRETS:
            said = f"{name} would be seen by everybody who lists processes; give it by --set-file {name}=FILE"
            raise click.BadParameter(said, param_hint="--set")
        found[name] = setting(name, value, "--set")
    for pair in files:
        name, equals, path = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"got {pair!r}, wanted name=file", param_hint="--set-file")
        found[name] = setting(name, read_secret(path), "--set-file")
    return found


def read_secret(path: str) -> str:
    """Return the first line of a file, or of standard input for ``-``."""
    try:
        text = sys.stdin.readline() if path == "-" else Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"--set-file {path}: {error.strerror}") from error
    return text.partition("\n")[0].rstrip("\r")


@context.command("add")
@click.argument("name")
@click.option("-n", "--namesrv", required=True, help="Name servers, host:port;host:port.")
@click.option("--access-key", help="Who one is. The secret key is asked for, if no --set-file gives it.")
@click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE", help=f"A setting: {', '.join(sorted(CONTEXT_SETTINGS))}."
)
@click.option(
    "--set-file",
    "files",
    multiple=True,
    metavar="NAME=FILE",
    help="A setting, such as secret_key, from the first line of a file; - is standard input.",
)
@click.option("--description", default="", help="What it is, for people.")
@click.option("--use", "at_once", is_flag=True, help="Use it from now on.")
@click.option("--replace", is_flag=True, help="Replace one of that name.")
@output_option
@click.pass_obj
def add(
    common: Common,
    name: str,
    namesrv: str,
    access_key: str | None,
    pairs: tuple[str, ...],
    files: tuple[str, ...],
    description: str,
    at_once: bool,
    replace: bool,
    output: str,
) -> None:
    """Add the cluster NAME. The first one is used from now on."""

    def work() -> Contexts:
        check_name(name)
        settings = parse_settings(pairs, files)
        if access_key is not None:
            settings["access_key"] = access_key
            if "secret_key" not in settings:
                settings["secret_key"] = click.prompt("secret key", hide_input=True, err=True)
        configure(parse_addresses(namesrv), environment={}).settings(ClientSettings(), None, settings)
        contexts = load_contexts(os.environ)
        if name in contexts.table and not replace:
            raise ConfigError(f"there is a context {name!r} in {contexts.path} already; --replace replaces it")
        contexts.table[name] = ClusterContext(namesrv, description, settings)
        if at_once or contexts.current is None:
            contexts.current = name
        contexts.save()
        return contexts

    contexts = guarded(work)
    print_context(contexts, name, output)
    talk(f"{name} is in {contexts.path}{' and is used from now on' if contexts.current == name else ''}")


@context.command("use")
@click.argument("name", required=False)
@click.option("--none", is_flag=True, help="Use no context.")
@output_option
def use(name: str | None, none: bool, output: str) -> None:
    """Use the cluster NAME from now on."""
    if (name is None) is not none:
        raise click.UsageError("give NAME or --none")

    def work() -> Contexts:
        contexts = load_contexts(os.environ)
        if name is not None:
            contexts.get(name)
        contexts.current = name
        contexts.save()
        return contexts

    contexts = guarded(work)
    show_pairs({"current": contexts.current}, output)


@context.command("list")
@output_option
def list_contexts(output: str) -> None:
    """List the clusters that have names."""
    contexts = guarded(lambda: load_contexts(os.environ))
    records = [record_of(contexts, name) for name in sorted(contexts.table)]
    shown = [record | {"current": "*" if record["current"] else " "} for record in records]
    show_records(shown if output == "table" else records, output, COLUMNS)


def record_of(contexts: Contexts, name: str) -> dict[str, Any]:
    return {"current": name == contexts.current, "name": name, **contexts.table[name].record()}


@context.command("show")
@click.argument("name", required=False)
@output_option
@click.pass_obj
def show_context(common: Common, name: str | None, output: str) -> None:
    """Show the cluster NAME, or what commands would speak to now, and who said so. Secrets are not printed."""
    if name is not None:
        print_context(guarded(lambda: load_contexts(os.environ)), name, output)
        return
    connection = guarded(lambda: common.connection)
    settings = {key: SHOWN_SECRET if key in SECRETS else value for key, value in connection.settings.items()}
    record = {"context": connection.context, "nameServers": connection.name_servers, "from": connection.source}
    show_pairs({**record, "settings": settings}, output)


def print_context(contexts: Contexts, name: str, output: str) -> None:
    guarded(lambda: contexts.get(name))
    if is_open_to_others(contexts.path):
        talk(f"warning: others can read {contexts.path}: chmod 600 it")
    record = record_of(contexts, name)
    show(record, output, lambda: show_pairs(record, "table"))


@context.command("remove")
@click.argument("name")
@yes_option
@output_option
def remove(name: str, yes: bool, output: str) -> None:
    """Forget the cluster NAME, and its keys."""
    confirm(yes, f"forget the context {name}")

    def work() -> Contexts:
        contexts = load_contexts(os.environ)
        contexts.get(name)
        del contexts.table[name]
        if contexts.current == name:
            contexts.current = None
        contexts.save()
        return contexts

    contexts = guarded(work)
    show_pairs({"removed": name, "current": contexts.current}, output)
