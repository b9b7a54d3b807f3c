"""``mqcore group``: list, create, update, delete, show, members, subscription, running."""

from __future__ import annotations

from typing import Any

import click

from mqcore.admin.options import (
    broker_option,
    check_place,
    cluster_option,
    confirm,
    output_option,
    show_outcomes,
    yes_option,
)
from mqcore.admin.output import print_table, show, show_pairs, show_records, talk
from mqcore.admin.running import Common, check_outcomes, run_admin
from mqcore.client.admin import Admin
from mqcore.client.admin.groups import is_system_group
from mqcore.codes import LanguageCode, version_name
from mqcore.protocol.bodies import ClientConnection

CLIENT_COLUMNS = {"clientId": "CLIENT", "address": "ADDRESS", "language": "LANGUAGE", "version": "VERSION"}


@click.group()
def group() -> None:
    """Look after consumer groups."""


@group.command("list")
@click.option("--all", "everything", is_flag=True, help="Show the groups of the system too.")
@output_option
@click.pass_obj
def list_groups(common: Common, everything: bool, output: str) -> None:
    """List the consumer groups that brokers have."""
    names = run_admin(common, lambda admin: admin.list_groups())
    if not everything:
        names = [name for name in names if not is_system_group(name)]
    show(names, output, lambda: print_table(["GROUP"], [[name] for name in names]))


@group.command("create")
@click.argument("name")
@click.option("--retry-max", type=click.IntRange(0), default=16, show_default=True, help="Retries before dead letters.")
@click.option("--retry-queues", type=click.IntRange(1, 65535), default=1, show_default=True)
@click.option("--no-broadcast", is_flag=True, help="Refuse members that broadcast.")
@cluster_option
@broker_option
@output_option
@click.pass_obj
def create_group(
    common: Common,
    name: str,
    retry_max: int,
    retry_queues: int,
    no_broadcast: bool,
    cluster: str | None,
    broker: str | None,
    output: str,
) -> None:
    """Create the group NAME, or set it up anew, on all masters."""
    check_place(cluster, broker)
    outcomes = run_admin(
        common,
        lambda admin: admin.create_group(
            name,
            retry_max_times=retry_max,
            retry_queues=retry_queues,
            broadcast_enable=not no_broadcast,
            cluster=cluster,
            broker_address=broker,
        ),
    )
    show_outcomes(outcomes, {"group": name}, "created", output)
    check_outcomes(outcomes, "created")


@group.command("update")
@click.argument("name")
@click.option("--enable/--disable", "enabled", default=None, help="Whether the group may consume.")
@click.option("--broadcast/--no-broadcast", default=None)
@click.option("--retry-max", type=click.IntRange(0))
@click.option("--retry-queues", type=click.IntRange(1, 65535))
@output_option
@click.pass_obj
def update_group(
    common: Common,
    name: str,
    enabled: bool | None,
    broadcast: bool | None,
    retry_max: int | None,
    retry_queues: int | None,
    output: str,
) -> None:
    """Change what is given of the group NAME, and leave the rest."""
    if all(given is None for given in (enabled, broadcast, retry_max, retry_queues)):
        raise click.UsageError("say what to change")
    outcomes = run_admin(
        common,
        lambda admin: admin.update_group(
            name,
            consume_enable=enabled,
            broadcast_enable=broadcast,
            retry_max_times=retry_max,
            retry_queues=retry_queues,
        ),
    )
    show_outcomes(outcomes, {"group": name}, "updated", output)
    check_outcomes(outcomes, "updated")


@group.command("delete")
@click.argument("name")
@click.option("--offsets", is_flag=True, help="Delete its offsets too: created again, it begins anew.")
@cluster_option
@yes_option
@output_option
@click.pass_obj
def delete_group(common: Common, name: str, offsets: bool, cluster: str | None, yes: bool, output: str) -> None:
    """Delete the group NAME."""
    confirm(yes, f"delete the group {name}{' and its offsets' if offsets else ''}")
    outcomes = run_admin(common, lambda admin: admin.delete_group(name, remove_offsets=offsets, cluster=cluster))
    show_outcomes(outcomes, {"group": name}, "deleted", output)
    check_outcomes(outcomes, "deleted")


@group.command("show")
@click.argument("name")
@output_option
@click.pass_obj
def show_group(common: Common, name: str, output: str) -> None:
    """Show how each broker has the group NAME."""
    configs = run_admin(common, lambda admin: admin.group_configs(name))
    records = [
        {
            "broker": address,
            "consumeEnable": config.consume_enable,
            "broadcastEnable": config.consume_broadcast_enable,
            "retryMax": config.retry_max_times,
            "retryQueues": config.retry_queue_nums,
        }
        for address, config in sorted(configs.items())
    ]
    columns = {"broker": "BROKER", "consumeEnable": "ENABLED", "broadcastEnable": "BROADCAST", "retryMax": "RETRY MAX"}
    show_records(records, output, {**columns, "retryQueues": "RETRY QUEUES"})


@group.command("members")
@click.argument("name")
@output_option
@click.pass_obj
def group_members(common: Common, name: str, output: str) -> None:
    """List the clients that are in the group NAME now."""

    async def work(admin: Admin) -> list[ClientConnection]:
        return (await admin.group_connection(name)).connection_set

    show_records([client_record(client) for client in run_admin(common, work)], output, CLIENT_COLUMNS)


def client_record(client: ClientConnection) -> dict[str, Any]:
    """Return one client as the lists of clients show it."""
    return {
        "clientId": client.client_id,
        "address": client.client_addr,
        "language": LanguageCode(client.language).name,
        "version": version_name(client.version),
    }


@group.command("subscription")
@click.argument("name")
@output_option
@click.pass_obj
def group_subscription(common: Common, name: str, output: str) -> None:
    """Show what the members of the group NAME subscribe to, and whether they contradict each other."""
    connection = run_admin(common, lambda admin: admin.group_connection(name))
    records: list[dict[str, Any]] = [
        {"topic": topic, "expression": data.sub_string, "type": data.expression_type or "TAG", "conflict": None}
        for topic, data in sorted(connection.subscription_table.items())
    ]
    conflict = connection.subscription_conflict
    if conflict is not None:
        if conflict.topic not in connection.subscription_table:  # which is the last heart-beat's
            records.append({"topic": conflict.topic, "expression": None, "type": None, "conflict": None})
        next(record for record in records if record["topic"] == conflict.topic)["conflict"] = [
            {"clientId": conflict.first_client, "wants": conflict.first},
            {"clientId": conflict.second_client, "wants": conflict.second},
        ]
        talk(f"warning: {conflict}")
    show_records(records, output, {"topic": "TOPIC", "expression": "EXPRESSION", "type": "TYPE"})


@group.command("running")
@click.argument("name")
@click.argument("client_id")
@click.option("--stacks", is_flag=True, help="Show where its threads stand, too.")
@output_option
@click.pass_obj
def running_info(common: Common, name: str, client_id: str, stacks: bool, output: str) -> None:
    """Show what the member CLIENT_ID of the group NAME tells of itself."""
    info = run_admin(common, lambda admin: admin.consumer_running_info(name, client_id, with_stacks=stacks))
    queues = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "commitOffset": row.commit_offset,
            "cachedMessages": row.cached_msg_count,
            "cachedMiB": row.cached_msg_size_in_mib,
            "locked": row.locked,
        }
        for queue, row in sorted(info.mq_table.items())
    ]

    def table() -> None:
        show_pairs(info.properties, "table")
        headings = ["TOPIC", "BROKER", "QUEUE", "COMMITTED", "CACHED", "MIB", "LOCKED"]
        print_table(headings, [list(row.values()) for row in queues])
        if info.jstack:
            print_table(["STACKS"], [[line] for line in info.jstack.splitlines()])

    show({"properties": info.properties, "queues": queues, "stacks": info.jstack}, output, table, queues)
