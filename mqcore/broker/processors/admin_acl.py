"""Who may do what, asked and changed by operators. Source: RocketMQ broker/processor/AdminBrokerProcessor.java."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.broker.security.changes import AccountChange
from mqcore.codes import ResponseCode, SerializeType
from mqcore.errors import MQError
from mqcore.protocol import fastjson, headers
from mqcore.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)

IS_OFF: Final = "access control is off: aclEnable is false"


class AdminAclProcessor:
    """Shows and changes accounts and white addresses."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def update_account(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 50: an account is made, or what is given of it is changed."""
        header = headers.decode_request(request.code, request.ext_fields)
        key = header["access_key"]
        change = AccountChange(
            access_key=key,
            secret_key=header["secret_key"],
            white_remote_address=header["white_remote_address"],
            admin=header["admin"],
            default_topic_perm=header["default_topic_perm"],
            default_group_perm=header["default_group_perm"],
            topic_perms=_listed(header["topic_perms"]),
            group_perms=_listed(header["group_perms"]),
        )
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        if (rules := self._broker.rules) is None:
            return request.reply(failed, IS_OFF)
        try:
            await rules.update_account(change)
        except (MQError, OSError) as error:
            return request.reply(failed, str(error))
        logger.info("account changed key=%s by=%s", key, channel_address(channel))
        return _done(request)

    async def delete_account(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 51."""
        key = headers.decode_request(request.code, request.ext_fields)["access_key"]
        failed = ResponseCode.DELETE_ACL_CONFIG_FAILED
        if (rules := self._broker.rules) is None:
            return request.reply(failed, IS_OFF)
        try:
            if not await rules.delete_account(key):
                return request.reply(
                    failed, f"The accesskey[{key}] corresponding to accessConfig has been deleted failed."
                )
        except (MQError, OSError) as error:
            return request.reply(failed, str(error))
        logger.info("account deleted key=%s by=%s", key, channel_address(channel))
        return _done(request)

    async def update_white_addresses(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 53: the addresses of one file that are let in without a key."""
        header = headers.decode_request(request.code, request.ext_fields)
        addresses = header["global_white_addrs"]
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        if (rules := self._broker.rules) is None:
            return request.reply(failed, IS_OFF)
        try:
            if not await rules.update_white_addresses(_listed(addresses) or [], header["acl_file_full_path"] or ""):
                return request.reply(failed, f"The globalWhiteAddresses[{addresses}] has been updated failed.")
        except (MQError, OSError) as error:
            return request.reply(failed, str(error))
        logger.info("white addresses changed addresses=%s by=%s", addresses, channel_address(channel))
        return _done(request)

    async def versions(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 52: how often and when each file was changed. Where access control is off RocketMQ is silent."""
        if (rules := self._broker.rules) is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, IS_OFF)
        settings = self._broker.settings.broker
        versions = {path: version.to_json() for path, version in rules.versions.items()}
        return request.reply(
            ext_fields=headers.encode_response(
                request.code,
                version=rules.default_version.encode().decode(),
                all_acl_file_version=fastjson.dumps(versions).decode(),
                broker_name=settings.broker_name,
                broker_addr=str(self._broker.address),
                cluster_name=settings.broker_cluster_name,
            )
        )

    async def accounts(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 54, which releases before 4.9.8 have and the Dashboard's page of accounts asks.

        They answer it with every secret, and to anybody with a key. Here secrets are hidden, and who asks is an admin.
        """
        if (rules := self._broker.rules) is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, IS_OFF)
        white, accounts = await rules.listing()
        return request.reply(body=fastjson.dumps({"globalWhiteAddrs": white, "plainAccessConfigs": accounts}))


def _listed(text: str | None) -> list[str] | None:
    """Pieces between commas; none of a blank text. Source: UtilAll.split."""
    if text is None or not text.strip():
        return None if text is None else []
    pieces = text.split(",")
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def _done(request: RemotingCommand) -> RemotingCommand:
    return replace(request.reply(), serialize_type=SerializeType.JSON)
