"""How the log is copied, for operators. Source: RocketMQ 5.x broker/processor/AdminBrokerProcessor.java."""

from __future__ import annotations

from typing import Any

from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel, ReplicationFacts, SlaveFacts
from mqcore.codes import ResponseCode
from mqcore.protocol import fastjson
from mqcore.protocol.command import RemotingCommand


class AdminHaProcessor:
    """Answers from what the ha worker says."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def ha_status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 907, of 5.x, in its words; *state*, *behindMs*, *replicatedOffset* and *refusal* are our own."""
        if self._broker.replication is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "this broker knows no replicas")
        facts = self._broker.replication.facts()
        slave = self._broker.slave
        status: dict[str, Any] = {
            "master": not self._broker.is_slave,
            "masterCommitLogMaxOffset": facts.end,
            "inSyncSlaveNums": sum(is_in_sync(copy) for copy in facts.slaves),
            "haConnectionInfo": [connection(copy) for copy in facts.slaves],
            "replicatedOffset": facts.replicated_end,
            "role": str(self._broker.settings.store.broker_role),
        }
        if slave is not None:
            status["haClientRuntimeInfo"] = client(facts, slave.ha_address)
            status["refusal"] = slave.refusal
        return request.reply(body=fastjson.dumps(status))


def is_in_sync(copy: SlaveFacts) -> bool:
    """Whether the slave has everything that the log has."""
    return copy.state == "COPYING" and copy.behind_bytes == 0


def connection(copy: SlaveFacts) -> dict[str, Any]:
    """Return a slave as HAConnectionRuntimeInfo has it."""
    return {
        "addr": copy.address,
        "slaveAckOffset": copy.acked,
        "diff": copy.behind_bytes,
        "inSync": is_in_sync(copy),
        "transferredByteInSecond": 0,
        "transferFromWhere": copy.sent,
        "state": copy.state,
        "behindMs": copy.behind_ms,
    }


def client(facts: ReplicationFacts, master: str) -> dict[str, Any]:
    """Return the way to the master as HAClientRuntimeInfo has it."""
    return {
        "masterAddr": master,
        "transferredByteInSecond": 0,
        "maxOffset": facts.end,
        "lastReadTimestamp": facts.master_seen_ms,
        "lastWriteTimestamp": facts.master_seen_ms,
        "masterFlushOffset": facts.master_end,
        "activated": facts.is_copying,
    }


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
