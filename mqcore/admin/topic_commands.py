"""``mqcore topic``: list, create, route."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from mqcore.admin.api import Admin
from mqcore.admin.output import OUTPUTS, print_json, print_table, talk
from mqcore.admin.running import Common, PartialError, run
from mqcore.codes import PermName
from mqcore.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mqcore.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic

PERMISSIONS = {"rw": PermName.READ | PermName.WRITE, "r": PermName.READ, "w": PermName.WRITE}

output_option = click.option("--output", type=click.Choice(OUTPUTS), default="table", show_default=True)


@click.group()
def topic() -> None:
    """Look after topics."""


@topic.command("list")
@click.option("--all", "everything", is_flag=True, help="Show retry, dead letter and system topics too.")
@output_option
@click.pass_obj
def list_topics(common: Common, everything: bool, output: str) -> None:
    """List the topics that the name server knows."""

    async def work() -> None:
        async with common.client() as mq:
            admin = Admin(mq)
            names = await admin.list_topics()
            if not everything:
                own = await cluster_topics(admin)
                names = [
                    name
                    for name in names
                    if not (is_retry_topic(name) or is_dlq_topic(name) or is_system_topic(name, own))
                ]
        if output == "json":
            print_json(names)
        else:
            print_table(["TOPIC"], [[name] for name in names])

    run(work)


async def cluster_topics(admin: Admin) -> set[str]:
    """Return the topics that clusters and brokers have under their own names."""
    info = await admin.cluster_info()
    clusters = set(info.cluster_addr_table)
    return clusters | set(info.broker_addr_table) | {f"{name}_REPLY_TOPIC" for name in clusters}


@topic.command("create")
@click.argument("name")
@click.option("--queues", type=click.IntRange(1, 65535), default=8, show_default=True, help="Queues on each broker.")
@click.option("--write-queues", type=click.IntRange(1, 65535), help="Queues to write to, when not all.")
@click.option("--perm", type=click.Choice(list(PERMISSIONS)), default="rw", show_default=True)
@click.option("--cluster", help="Only on the brokers of this cluster.")
@click.option("--broker", help="Only on the broker at this address, host:port.")
@output_option
@click.pass_obj
def create_topic(
    common: Common,
    name: str,
    queues: int,
    write_queues: int | None,
    perm: str,
    cluster: str | None,
    broker: str | None,
    output: str,
) -> None:
    """Create the topic NAME, or change it, on all masters."""
    if cluster is not None and broker is not None:
        raise click.UsageError("give --cluster or --broker, not both")

    async def work() -> None:
        async with common.client() as mq:
            outcomes = await Admin(mq).create_topic(
                name,
                read_queues=queues,
                write_queues=write_queues,
                perm=PERMISSIONS[perm],
                cluster=cluster,
                broker_address=broker,
            )
        rows = [(address, "created" if error is None else str(error)) for address, error in outcomes.items()]
        if output == "json":
            print_json({"topic": name, "brokers": dict(rows)})
        else:
            print_table(["BROKER", "RESULT"], rows)
        failed = {address: error for address, error in outcomes.items() if error is not None}
        if failed and len(failed) < len(outcomes):
            raise PartialError(f"not created on {', '.join(failed)}")
        for error in failed.values():
            raise error
        talk(f"topic {name} has {queues} queues on each of {len(outcomes)} brokers")

    run(work)


@topic.command("route")
@click.argument("name")
@output_option
@click.pass_obj
def topic_route(common: Common, name: str, output: str) -> None:
    """Show which brokers have the topic NAME."""

    async def work() -> None:
        async with common.client() as mq:
            route = await Admin(mq).topic_route(name)
        rows = [row_of(route, data) for data in route.queue_datas]
        if output == "json":
            print_json(
                {"topic": name, "queues": [asdict(row) for row in rows], "orderTopicConf": route.order_topic_conf}
            )
        else:
            cells = [
                (row.broker, row.cluster, row.readQueues, row.writeQueues, row.perm, row.addresses_text) for row in rows
            ]
            print_table(["BROKER", "CLUSTER", "READ", "WRITE", "PERM", "ADDRESSES"], cells)

    run(work)


@dataclass(frozen=True)
class RouteRow:
    """The queues of a topic on one broker; field names are those of the JSON output."""

    broker: str
    cluster: str
    addresses: dict[str, str]
    readQueues: int
    writeQueues: int
    perm: str

    @property
    def addresses_text(self) -> str:
        return " ".join(f"{broker_id}={address}" for broker_id, address in self.addresses.items())


def row_of(route: TopicRouteData, data: QueueData) -> RouteRow:
    broker = next((broker for broker in route.broker_datas if broker.broker_name == data.broker_name), BrokerData())
    return RouteRow(
        broker=data.broker_name,
        cluster=broker.cluster,
        addresses={str(broker_id): address for broker_id, address in sorted(broker.broker_addrs.items())},
        readQueues=data.read_queue_nums,
        writeQueues=data.write_queue_nums,
        perm=PermName.to_text(data.perm),
    )
