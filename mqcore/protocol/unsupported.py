"""What is said of a request that nobody here answers; most often a broker was taken for a name server, or it for it."""

from __future__ import annotations

from typing import Final

from mqcore.codes import RequestCode

ASKED_OF_NAME_SERVERS: Final = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.REGISTER_BROKER,
    }
)
"""What a client, a tool or a broker begins with."""

ASKED_OF_BROKERS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.GET_BROKER_RUNTIME_INFO,
    }
)

BROKER: Final = ": this is a broker, and that is for a name server (which listens on port 9876 unless told otherwise)"
NAME_SERVER: Final = ": this is a name server, and that is for a broker"


def not_supported(code: int) -> str:
    """Return RocketMQ's remark."""
    return f" request type {code} not supported"


def not_supported_by_broker(code: int) -> str:
    return not_supported(code) + (BROKER if code in ASKED_OF_NAME_SERVERS else "")


def not_supported_by_name_server(code: int) -> str:
    return not_supported(code) + (NAME_SERVER if code in ASKED_OF_BROKERS else "")
