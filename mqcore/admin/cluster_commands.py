"""``mqcore cluster``, ``mqcore broker``, ``mqcore namesrv`` and ``mqcore producer``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from mqcore.admin.group_commands import CLIENT_COLUMNS, client_record
from mqcore.admin.options import confirm, output_option, show_outcomes, yes_option
from mqcore.admin.output import print_table, show, show_pairs, show_records
from mqcore.admin.running import Common, PartialError, check_outcomes, fail, run_admin
from mqcore.admin.send_command import parse_properties
from mqcore.client.admin import Admin
from mqcore.client.admin.base import BrokerPlace, answers_of
from mqcore.client.errors import NotFoundError
from mqcore.errors import MQError

BROKER_COLUMNS = {
    "cluster": "CLUSTER",
    "broker": "BROKER",
    "brokerId": "ID",
    "address": "ADDRESS",
    "version": "VERSION",
    "putTps": "IN/S",
    "getTps": "OUT/S",
}


def first_word(text: str | None) -> float | None:
    """Return the first number of a rate, which brokers give for 10, 60 and 600 seconds."""
    words = (text or "").split()
    return round(float(words[0]), 2) if words else None


@click.group()
def cluster() -> None:
    """Look at clusters."""


@cluster.command("list")
@output_option
@click.pass_obj
def list_clusters(common: Common, output: str) -> None:
    """List the brokers of all clusters, with their rates."""

    async def work(admin: Admin) -> list[tuple[BrokerPlace, Mapping[str, str] | MQError]]:
        places = {place.address: place for place in await admin.brokers()}

        async def ask(address: str) -> Mapping[str, str] | MQError:
            try:
                return await admin.broker_runtime(address)
            except MQError as error:
                return error

        return [(places[address], info) for address, info in (await answers_of(places, ask)).items()]

    found = run_admin(common, work)
    records: list[dict[str, Any]] = []
    silent: list[str] = []
    for place, info in found:
        if isinstance(info, MQError):
            silent.append(f"{place.address} ({info})")
        runtime = {} if isinstance(info, MQError) else info
        records.append(
            {
                "cluster": place.cluster,
                "broker": place.name,
                "brokerId": place.broker_id,
                "address": place.address,
                "version": runtime.get("brokerVersionDesc"),
                "putTps": first_word(runtime.get("putTps")),
                "getTps": first_word(runtime.get("getTransferedTps") or runtime.get("getTransferredTps")),
            }
        )
    show_records(records, output, BROKER_COLUMNS)
    if silent:
        fail(PartialError(f"no answer from {', '.join(silent)}"))


@click.group()
def broker() -> None:
    """Look at brokers, and set them up. A broker is given by its name, or as host:port."""


@broker.command("status")
@click.argument("name")
@output_option
@click.pass_obj
def broker_status(common: Common, name: str, output: str) -> None:
    """Show how the broker NAME is."""
    show_pairs(run_admin(common, lambda admin: admin.broker_runtime(name)), output)


@broker.command("config")
@click.argument("name")
@click.argument("keys", nargs=-1)
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a setting; needs --yes.")
@yes_option
@output_option
@click.pass_obj
def broker_config(
    common: Common, name: str, keys: tuple[str, ...], changes: tuple[str, ...], yes: bool, output: str
) -> None:
    """Show the settings of the broker NAME, or those named KEYS, or change some."""
    wanted = parse_properties(changes)
    if wanted:
        confirm(yes, f"change {', '.join(wanted)} of the broker {name}")

    async def work(admin: Admin) -> dict[str, str]:
        if wanted:
            unknown = sorted(set(wanted) - set(await admin.broker_config(name)))
            if unknown:
                raise NotFoundError(f"the broker {name} has no setting {', '.join(unknown)}")
            await admin.update_broker_config(name, wanted)
        found = await admin.broker_config(name)
        chosen = [*keys, *wanted] or list(found)
        missing = [key for key in chosen if key not in found]
        if missing:
            raise NotFoundError(f"the broker {name} has no setting {', '.join(missing)}")
        return {key: found[key] for key in chosen}

    found = run_admin(common, work)
    show_pairs(found, output)
    different = [key for key, value in wanted.items() if found[key] != value]
    if different:
        fail(PartialError(f"the broker did not take {', '.join(different)}"))


@broker.command("clean")
@click.argument("name")
@click.option("--commit-log", is_flag=True, help="Delete expired commit log files too.")
@yes_option
@output_option
@click.pass_obj
def broker_clean(common: Common, name: str, commit_log: bool, yes: bool, output: str) -> None:
    """Let the broker NAME delete expired consume queue files."""
    confirm(yes, f"delete expired files of the broker {name}")

    async def work(admin: Admin) -> None:
        await admin.clean_consume_queues(name)
        if commit_log:
            await admin.delete_expired_commit_log(name)

    run_admin(common, work)
    cleaned = ["consume queues", *(["commit log"] if commit_log else [])]
    show_pairs({"broker": name, "cleaned": cleaned}, output)


@broker.command("wipe-write-perm")
@click.argument("name")
@yes_option
@output_option
@click.pass_obj
def wipe_write_perm(common: Common, name: str, yes: bool, output: str) -> None:
    """Let name servers hide the topics of the broker NAME from producers."""
    confirm(yes, f"keep producers away from the broker {name}")
    show_pairs({"broker": name, "topics": run_admin(common, lambda admin: admin.wipe_write_perm(name))}, output)


@broker.command("add-write-perm")
@click.argument("name")
@output_option
@click.pass_obj
def add_write_perm(common: Common, name: str, output: str) -> None:
    """Let name servers show the topics of the broker NAME to producers again."""
    show_pairs({"broker": name, "topics": run_admin(common, lambda admin: admin.add_write_perm(name))}, output)


@click.group()
def namesrv() -> None:
    """Look at name servers, and the values they keep."""


@namesrv.command("config")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a setting of all; needs --yes.")
@yes_option
@output_option
@click.pass_obj
def name_server_config(common: Common, changes: tuple[str, ...], yes: bool, output: str) -> None:
    """Show the settings of each name server, or change some."""
    wanted = parse_properties(changes)
    if wanted:
        confirm(yes, f"change {', '.join(wanted)} of all name servers")
        outcomes = run_admin(common, lambda admin: admin.update_name_server_config(wanted))
        show_outcomes(outcomes, wanted, "updated", output)
        check_outcomes(outcomes, "updated")
        return
    found = run_admin(common, lambda admin: admin.name_server_config())
    rows = [(address, key, value) for address, values in found.items() for key, value in values.items()]
    records = [{"nameServer": address, "name": key, "value": value} for address, key, value in rows]
    show(found, output, lambda: print_table(["NAME SERVER", "NAME", "VALUE"], rows), records)


@namesrv.group()
def kv() -> None:
    """Values that name servers keep."""


@kv.command("list")
@click.argument("namespace")
@output_option
@click.pass_obj
def list_kv(common: Common, namespace: str, output: str) -> None:
    """Show all values of NAMESPACE."""
    show_pairs(run_admin(common, lambda admin: admin.list_kv(namespace)), output, ("KEY", "VALUE"))


@kv.command("get")
@click.argument("namespace")
@click.argument("key")
@output_option
@click.pass_obj
def get_kv(common: Common, namespace: str, key: str, output: str) -> None:
    """Print the value of KEY."""
    value = run_admin(common, lambda admin: admin.get_kv(namespace, key))
    show({"namespace": namespace, "key": key, "value": value}, output, lambda: click.echo(value))


@kv.command("put")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@output_option
@click.pass_obj
def put_kv(common: Common, namespace: str, key: str, value: str, output: str) -> None:
    """Set KEY to VALUE at all name servers."""
    outcomes = run_admin(common, lambda admin: admin.put_kv(namespace, key, value))
    show_outcomes(outcomes, {"namespace": namespace, "key": key}, "set", output)
    check_outcomes(outcomes, "set")


@kv.command("delete")
@click.argument("namespace")
@click.argument("key")
@yes_option
@output_option
@click.pass_obj
def delete_kv(common: Common, namespace: str, key: str, yes: bool, output: str) -> None:
    """Delete KEY at all name servers."""
    confirm(yes, f"delete {key} of {namespace}")
    outcomes = run_admin(common, lambda admin: admin.delete_kv(namespace, key))
    show_outcomes(outcomes, {"namespace": namespace, "key": key}, "deleted", output)
    check_outcomes(outcomes, "deleted")


@click.group()
def producer() -> None:
    """Look at producers."""


@producer.command("list")
@click.argument("group", required=False)
@output_option
@click.pass_obj
def list_producers(common: Common, group: str | None, output: str) -> None:
    """List the producer groups that are online, or the clients of GROUP."""
    if group is None:
        groups = run_admin(common, lambda admin: admin.producers())
        rows = [(name, client) for name, clients in groups.items() for client in clients]
        records = [{"group": name, "clientId": client} for name, client in rows]
        show(groups, output, lambda: print_table(["GROUP", "CLIENT"], rows), records)
        return
    clients = run_admin(common, lambda admin: admin.producer_connection(group))
    show_records([client_record(client) for client in clients], output, CLIENT_COLUMNS)
