"""Requests of features that this broker does not have yet. They are refused by name, so that an operator sees why."""

from __future__ import annotations

from typing import Final

from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.codes import RequestCode as Code
from mqcore.codes import ResponseCode
from mqcore.protocol.command import RemotingCommand

FEATURES: Final = {
    Code.UPDATE_AND_CREATE_ACL_CONFIG: "access control",
    Code.DELETE_ACL_CONFIG: "access control",
    Code.GET_BROKER_CLUSTER_ACL_INFO: "access control",
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: "access control",
}


class LaterProcessor:
    """Refuses."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def not_served(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer every code of FEATURES with REQUEST_CODE_NOT_SUPPORTED."""
        name = Code(request.code)
        return request.reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {request.code} not supported: this broker has no {FEATURES[name]} ({name.name})",
        )
