"""``mqcore topic``: list, create, update, delete, route, stats."""

from __future__ import annotations

from typing import Any

import click

from mqcore.admin.options import (
    PERMISSIONS,
    broker_option,
    check_place,
    cluster_option,
    confirm,
    output_option,
    show_outcomes,
    yes_option,
)
from mqcore.admin.output import print_table, show, show_records, talk, time_text
from mqcore.admin.running import Common, check_outcomes, run, run_admin
from mqcore.client.admin import Admin
from mqcore.client.errors import NoRouteError
from mqcore.client.model.rebalance import STRATEGIES
from mqcore.client.model.rebalance import allocate as allocate_queues
from mqcore.codes import PermName
from mqcore.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic

QUEUES = click.IntRange(1, 65535)
perm_type = click.Choice(list(PERMISSIONS))


@click.group()
def topic() -> None:
    """Look after topics."""


@topic.command("list")
@click.option("--all", "everything", is_flag=True, help="Show retry, dead letter and system topics too.")
@cluster_option
@output_option
@click.pass_obj
def list_topics(common: Common, everything: bool, cluster: str | None, output: str) -> None:
    """List the topics that the name server knows."""

    async def work(admin: Admin) -> list[str]:
        names = await admin.list_topics(cluster)
        if everything:
            return names
        own = await cluster_topics(admin)
        return [
            name for name in names if not (is_retry_topic(name) or is_dlq_topic(name) or is_system_topic(name, own))
        ]

    names = run_admin(common, work)
    show(names, output, lambda: print_table(["TOPIC"], [[name] for name in names]))


async def cluster_topics(admin: Admin) -> set[str]:
    """Return the topics that clusters and brokers have under their own names."""
    info = await admin.cluster_info()
    clusters = set(info.cluster_addr_table)
    return clusters | set(info.broker_addr_table) | {f"{name}_REPLY_TOPIC" for name in clusters}


@topic.command("create")
@click.argument("name")
@click.option("--queues", type=QUEUES, default=8, show_default=True, help="Queues on each broker.")
@click.option("--write-queues", type=QUEUES, help="Queues to write to, when not all.")
@click.option("--perm", type=perm_type, default="rw", show_default=True)
@click.option("--order", is_flag=True, help="Mark the topic as one whose order matters.")
@cluster_option
@broker_option
@output_option
@click.pass_obj
def create_topic(
    common: Common,
    name: str,
    queues: int,
    write_queues: int | None,
    perm: str,
    order: bool,
    cluster: str | None,
    broker: str | None,
    output: str,
) -> None:
    """Create the topic NAME, or set it up anew, on all masters."""
    check_place(cluster, broker)
    outcomes = run_admin(
        common,
        lambda admin: admin.create_topic(
            name,
            read_queues=queues,
            write_queues=write_queues,
            perm=PERMISSIONS[perm],
            order=order,
            cluster=cluster,
            broker_address=broker,
        ),
    )
    show_outcomes(outcomes, {"topic": name}, "created", output)
    check_outcomes(outcomes, "created")
    talk(f"topic {name} has {queues} queues on each of {len(outcomes)} brokers")


@topic.command("update")
@click.argument("name")
@click.option("--queues", type=QUEUES, help="Queues to read and write on each broker.")
@click.option("--read-queues", type=QUEUES)
@click.option("--write-queues", type=QUEUES)
@click.option("--perm", type=perm_type)
@click.option("--order/--no-order", default=None)
@cluster_option
@broker_option
@output_option
@click.pass_obj
def update_topic(
    common: Common,
    name: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    order: bool | None,
    cluster: str | None,
    broker: str | None,
    output: str,
) -> None:
    """Change what is given of the topic NAME, and leave the rest."""
    check_place(cluster, broker)
    if all(given is None for given in (queues, read_queues, write_queues, perm, order)):
        raise click.UsageError("say what to change")
    outcomes = run_admin(
        common,
        lambda admin: admin.update_topic(
            name,
            read_queues=queues if read_queues is None else read_queues,
            write_queues=queues if write_queues is None else write_queues,
            perm=None if perm is None else PERMISSIONS[perm],
            order=order,
            cluster=cluster,
            broker_address=broker,
        ),
    )
    show_outcomes(outcomes, {"topic": name}, "updated", output)
    check_outcomes(outcomes, "updated")


@topic.command("delete")
@click.argument("name")
@cluster_option
@yes_option
@output_option
@click.pass_obj
def delete_topic(common: Common, name: str, cluster: str | None, yes: bool, output: str) -> None:
    """Delete the topic NAME with its messages."""
    confirm(yes, f"delete the topic {name} with all its messages")
    outcomes = run_admin(common, lambda admin: admin.delete_topic(name, cluster=cluster))
    show_outcomes(outcomes, {"topic": name}, "deleted", output)
    check_outcomes(outcomes, "deleted")


@topic.command("clean-unused")
@cluster_option
@yes_option
@output_option
@click.pass_obj
def clean_unused(common: Common, cluster: str | None, yes: bool, output: str) -> None:
    """Let brokers drop the queues of topics that they do not have any more."""
    confirm(yes, "drop the queues of deleted topics")
    outcomes = run_admin(common, lambda admin: admin.clean_unused_topics(cluster))
    show_outcomes(outcomes, {}, "cleaned", output)
    check_outcomes(outcomes, "cleaned")


@topic.command("allocate")
@click.argument("name")
@click.argument("clients", nargs=-1, required=True)
@click.option(
    "--strategy", type=click.Choice(sorted(STRATEGIES)), default="AVG", show_default=True, help="How members share."
)
@output_option
@click.pass_obj
def allocate(common: Common, name: str, clients: tuple[str, ...], strategy: str, output: str) -> None:
    """Show which queues of the topic NAME each of CLIENTS would get, as the only members of a group."""

    async def work() -> list[MessageQueue]:
        async with common.client() as mq:
            queues = await mq.queues(name)
        if not queues:
            raise NoRouteError(name)
        return queues

    queues = run(work)
    members = sorted(set(clients))
    shares = {member: allocate_queues(STRATEGIES[strategy], member, queues, members) for member in members}
    records = [
        {"client": member, "broker": queue.broker_name, "queueId": queue.queue_id}
        for member, share in shares.items()
        for queue in share
    ]
    show_records(records, output, {"client": "CLIENT", "broker": "BROKER", "queueId": "QUEUE"})


@topic.command("route")
@click.argument("name")
@output_option
@click.pass_obj
def topic_route(common: Common, name: str, output: str) -> None:
    """Show which brokers have the topic NAME."""
    route = run_admin(common, lambda admin: admin.topic_route(name))
    rows = [route_row(route, data) for data in route.queue_datas]

    def table() -> None:
        print_table(
            ["BROKER", "CLUSTER", "READ", "WRITE", "PERM", "ADDRESSES"],
            [
                (
                    *(row[key] for key in ("broker", "cluster", "readQueues", "writeQueues", "perm")),
                    " ".join(f"{broker_id}={address}" for broker_id, address in row["addresses"].items()),
                )
                for row in rows
            ],
        )

    show({"topic": name, "queues": rows, "orderTopicConf": route.order_topic_conf}, output, table, rows)


def route_row(route: TopicRouteData, data: QueueData) -> dict[str, Any]:
    """Return the queues of a topic on one broker."""
    broker = next((broker for broker in route.broker_datas if broker.broker_name == data.broker_name), BrokerData())
    return {
        "broker": data.broker_name,
        "cluster": broker.cluster,
        "addresses": {str(broker_id): address for broker_id, address in sorted(broker.broker_addrs.items())},
        "readQueues": data.read_queue_nums,
        "writeQueues": data.write_queue_nums,
        "perm": PermName.to_text(data.perm),
    }


@topic.command("stats")
@click.argument("name")
@output_option
@click.pass_obj
def topic_stats(common: Common, name: str, output: str) -> None:
    """Show what each queue of the topic NAME holds."""
    found = run_admin(common, lambda admin: admin.offsets(name))
    records = [
        {
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": row.min_offset,
            "maxOffset": row.max_offset,
            "messages": row.max_offset - row.min_offset,
            "lastUpdate": time_text(row.last_update_timestamp),
        }
        for queue, row in found.items()
    ]
    columns = {"broker": "BROKER", "queueId": "QUEUE", "minOffset": "MIN", "maxOffset": "MAX"}
    show_records(records, output, {**columns, "messages": "MESSAGES", "lastUpdate": "LAST UPDATE"})


@topic.command("groups")
@click.argument("name")
@output_option
@click.pass_obj
def topic_groups(common: Common, name: str, output: str) -> None:
    """List the groups that consume the topic NAME."""
    groups = run_admin(common, lambda admin: admin.topic_groups(name))
    show(groups, output, lambda: print_table(["GROUP"], [[group] for group in groups]))
