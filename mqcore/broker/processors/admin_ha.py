"""How the log is copied, for operators. Source: RocketMQ 5.x broker/processor/AdminBrokerProcessor.java."""

from __future__ import annotations

from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel, ReplicationFacts, SlaveFacts
from mqcore.codes import ResponseCode
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.ha_bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo


class AdminHaProcessor:
    """Answers from what the ha worker says."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def ha_status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 907, of 5.x, in its words and some of our own."""
        if self._broker.replication is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "this broker knows no replicas")
        facts = self._broker.replication.facts()
        slave = self._broker.slave
        status = HARuntimeInfo(
            master=not self._broker.is_slave,
            master_commit_log_max_offset=facts.end,
            in_sync_slave_nums=sum(is_in_sync(copy) for copy in facts.slaves),
            ha_connection_info=[connection(copy) for copy in facts.slaves],
            replicated_offset=facts.replicated_end,
            role=str(self._broker.settings.store.broker_role),
        )
        if slave is not None:
            status.ha_client_runtime_info = client(facts, slave.ha_address)
            status.refusal = slave.refusal
        return request.reply(body=status.encode())

    async def epoch_cache(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 1007, of 5.x: members of a failover group find out by it how far their logs are one."""
        if self._broker.group is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "this broker is in no failover group")
        return request.reply(body=self._broker.group.epoch_cache().encode())


def is_in_sync(copy: SlaveFacts) -> bool:
    """Whether the slave has everything that the log has."""
    return copy.state == "COPYING" and copy.behind_bytes == 0


def connection(copy: SlaveFacts) -> HAConnectionRuntimeInfo:
    """Return what is known of a slave."""
    return HAConnectionRuntimeInfo(
        addr=copy.address,
        slave_ack_offset=copy.acked,
        diff=copy.behind_bytes,
        in_sync=is_in_sync(copy),
        transferred_byte_in_second=copy.bytes_per_second,
        transfer_from_where=copy.sent,
        state=copy.state,
        behind_ms=copy.behind_ms,
    )


def client(facts: ReplicationFacts, master: str) -> HAClientRuntimeInfo:
    """Return what a slave knows of its master."""
    return HAClientRuntimeInfo(
        master_addr=master,
        transferred_byte_in_second=facts.bytes_per_second,
        max_offset=facts.end,
        last_read_timestamp=facts.master_seen_ms,
        last_write_timestamp=facts.master_seen_ms,
        master_flush_offset=facts.master_end,
        activated=facts.is_copying,
    )


def runtime_rows(broker: BrokerContext) -> dict[str, str]:
    """Return rows of the runtime table; RocketMQ has none, and without replicas there are none here."""
    if broker.replication is None:
        return {}
    facts = broker.replication.facts()
    rows = {}
    if facts.slaves:
        rows = {"haReplicatedOffset": str(facts.replicated_end), "haSlaves": str(len(facts.slaves))}
    for copy in facts.slaves:
        rows[f"haSlave_{copy.address}"] = (
            f"{copy.state} acked={copy.acked} behindBytes={copy.behind_bytes} behindMs={copy.behind_ms}"
        )
    if broker.slave is not None:
        rows["haMaster"] = broker.slave.ha_address
        rows["haMasterState"] = "COPYING" if facts.is_copying else broker.slave.refusal or "NOT CONNECTED"
        rows["haMasterBehindBytes"] = str(max(0, facts.master_end - facts.end))
    return rows
