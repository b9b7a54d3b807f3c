"""The rows of RocketMQ's BrokerConfig: identity, topics, pulls, registration, and thread pools that we do not have."""

from __future__ import annotations

import os

from mqcore.config.defaults import advertised_address, black_list, host_name
from mqcore.config.table import (
    BY_BROKER,
    BY_PULL,
    BY_SEND,
    CLAMPED,
    LONG,
    SECRET,
    SHOWN,
    Computed,
    Group,
    Mark,
    Program,
    Setting,
    Unit,
    flag,
    in_group,
    number,
    text,
    unused,
)

BOTH = (Program.BROKER, Program.NAMESRV)


def _per_core(words: str, base: int, factor: int, most: int = 2**31 - 1) -> Computed:
    return Computed(words, lambda _: min(base + factor * (os.cpu_count() or 1), most))


IDENTITY = (
    text("namesrvAddr", "", "name servers, host:port separated by ;", SHOWN, environment_variable="NAMESRV_ADDR"),
    text("brokerIP1", advertised_address, "address that clients are told to connect to; stored in each message", SHOWN),
    text("brokerIP2", advertised_address, "address that slaves are told to connect to"),
    text("brokerName", host_name, "name of the broker; a master and its slaves share it", SHOWN),
    text("brokerClusterName", "DefaultCluster", "name of the cluster", SHOWN),
    number("brokerId", 0, "0 is the master, which a master role forces", SHOWN | LONG, minimum=-1),
    number("brokerPermission", 6, "permission bits of the whole broker: 4 read, 2 write", BY_BROKER, maximum=7),
    text("regionId", "DefaultRegion", "region that answers to sends carry, for message trace"),
    text(
        "configBlackList", black_list, "keys that a remote update refuses, besides all that are not changeable"
    )._replace(programs=BOTH),
)

ACCESS = (
    flag(
        "aclEnable",
        False,
        "ask who a request is from and what he may do, by conf/plain_acl.yml and conf/acl under rocketmqHome",
        SHOWN,
    ),
    text(
        "innerClientAuthenticationCredentials",
        "",
        "what a slave signs its questions to its master with, as RocketMQ 5.3 writes it:"
        ' {"accessKey":"...","secretKey":"..."}; empty: it signs nothing',
        SECRET,
    ),
    text(
        "rocketmqHome",
        "",
        "where conf/plain_acl.yml and conf/acl are looked for; nothing else",
        environment_variable="ROCKETMQ_HOME",
    )._replace(programs=BOTH),
)

TOPICS_AND_GROUPS = (
    number(
        "defaultTopicQueueNums", 8, "queues of the topic TBW102 that new topics are copied from", BY_BROKER, minimum=1
    ),
    flag("autoCreateTopicEnable", True, "create an unknown topic when a message is sent to it", BY_BROKER | SHOWN),
    flag("clusterTopicEnable", True, "the topic named like the cluster may be read and written"),
    flag("brokerTopicEnable", True, "the topic named like the broker may be read and written"),
    flag(
        "autoCreateSubscriptionGroup",
        True,
        "create an unknown consumer group when it first shows up",
        BY_BROKER | SHOWN,
    ),
    text("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "topic of message traces", SHOWN),
    flag("traceTopicEnable", False, "have the topic of message traces on this broker", SHOWN),
    flag("traceOn", True, "tell clients in answers to sends that traces are wanted", BY_BROKER | BY_SEND),
    flag("storeReplyMessageEnable", True, "keep answers of request-reply in the store, too", BY_BROKER | BY_SEND),
)

SERVICE = (
    number("flushConsumerOffsetInterval", 5_000, "pause between writings of consumer offsets", unit=Unit.MS, minimum=1),
    flag("longPollingEnable", True, "hold a pull that finds nothing for as long as the client asks", BY_BROKER),
    number(
        "shortPollingTimeMills",
        1_000,
        "hold a pull that long when longPollingEnable is off",
        BY_BROKER | LONG,
        unit=Unit.MS,
    ),
    flag("notifyConsumerIdsChangedEnable", True, "tell the members of a group when one comes or goes", BY_BROKER),
    flag("slaveReadEnable", False, "send consumers that lag far behind to a slave", BY_BROKER),
    flag("enableDetailStat", True, "count per queue as well as per topic and group"),
    number(
        "startAcceptSendRequestTimeStamp",
        0,
        "refuse sends before this time, counted from 1970",
        BY_BROKER | LONG,
        unit=Unit.MS,
    ),
    flag("recallMessageEnable", False, "a message with a timer may be taken back", BY_BROKER),
    flag("allowRecallWhenBrokerNotWriteable", True, "even while brokerPermission lets nobody write", BY_BROKER),
)

FILTERS = (
    flag(
        "enablePropertyFilter",
        True,
        "let consumers filter by SQL92 expressions; off by default in RocketMQ, whose evaluation is dear",
        BY_BROKER,
    ),
    flag(
        "filterSupportRetry",
        False,
        "a group that subscribes to its retry topic by SQL92 gets each message by its filter for the topic it is from",
        BY_BROKER,
    ),
    flag(
        "enableCalcFilterBitMap",
        True,
        "write into consume queue ext units which groups want the message (with enableConsumeQueueExt; off by default "
        "in RocketMQ)",
    ),
    number("expectConsumerNumUseFilter", 32, "groups of a topic that the bitmaps are made for", minimum=1),
    number(
        "maxErrorRateOfBloomFilter",
        20,
        "percent of messages that a bitmap lets through by chance with so many groups",
        minimum=1,
        maximum=99,
    ),
    number(
        "filterDataCleanTimeSpan",
        24 * 3_600_000,
        "forget the filter of a group that has been gone for so long",
        BY_BROKER | LONG,
        unit=Unit.MS,
    ),
)

TRANSACTIONS = (
    flag("rejectTransactionMessage", False, "refuse half messages", BY_BROKER | BY_SEND | SHOWN),
    number(
        "transactionTimeOut",
        6_000,
        "age from which a producer is asked about an open transaction",
        BY_BROKER | SHOWN | LONG,
        unit=Unit.MS,
    ),
    number(
        "transactionCheckMax",
        15,
        "how often to ask about a transaction; then its half message is kept in TRANS_CHECK_MAX_TIME_TOPIC",
        BY_BROKER | SHOWN,
        minimum=1,
    ),
    number(
        "transactionCheckInterval",
        60_000,
        "pause between rounds of looking for open transactions",
        BY_BROKER | SHOWN | LONG,
        unit=Unit.MS,
        minimum=1,
    ),
)

REGISTRATION = (
    flag("fetchNamesrvAddrByAddressServer", False, "without namesrvAddr, read name servers from a page by HTTP", SHOWN),
    text("rmqAddressServerDomain", "jmenv.tbsite.net", "host of that page, with a port that is not 8080"),
    text("rmqAddressServerSubGroup", "nsaddr", "last part of its path, after /rocketmq/"),
    number("registerBrokerTimeoutMills", 6_000, "wait for all name servers", BY_BROKER, unit=Unit.MS, minimum=1),
    number(
        "registerNameServerPeriod",
        30_000,
        "pause between registrations",
        CLAMPED,
        unit=Unit.MS,
        minimum=10_000,
        maximum=60_000,
    ),
    flag("forceRegister", True, "register each period even when no topic changed", BY_BROKER),
    flag("compressedRegister", False, "compress the body of a registration", BY_BROKER),
)


def _wait(name: str, default: int, what: str, readers: Mark) -> Setting:
    return number(name, default, what, readers | LONG, unit=Unit.MS, minimum=1)


PROTECTION = (
    flag(
        "disableConsumeIfConsumerReadSlowly",
        False,
        "switch consumption of a group off that reads further behind than consumerFallbehindThreshold, until an "
        "administrator switches it on",
        BY_BROKER,
    ),
    number(
        "consumerFallbehindThreshold",
        16 * 2**30,
        "commit log bytes that a group may read behind",
        BY_BROKER | LONG,
        unit=Unit.BYTES,
    ),
    flag(
        "brokerFastFailureEnable",
        True,
        "refuse requests that have waited longer than the following limits",
        BY_BROKER | BY_SEND | BY_PULL,
    ),
    _wait("waitTimeMillsInSendQueue", 200, "a send that has waited for so long is refused", BY_BROKER | BY_SEND),
    _wait("waitTimeMillsInPullQueue", 5_000, "the same of a pull", BY_PULL),
    _wait("waitTimeMillsInHeartbeatQueue", 31_000, "the same of a heart-beat", BY_BROKER),
    _wait("waitTimeMillsInTransactionQueue", 3_000, "the same of an end of a transaction", BY_BROKER | BY_SEND),
)

POOL = "mqcore has one process per kind of work and no thread pools"
QUEUE = "mqcore bounds its rings and buffers itself"

UNUSED = (
    unused("brokerConfigPath", "", "the file is the one given with -c"),
    unused("messageStorePlugIn", "", "names Java classes", Mark.EMPTY),
    unused("sendMessageThreadPoolNums", _per_core("min(cores, 4)", 0, 1, 4), POOL),
    unused("putMessageFutureThreadPoolNums", _per_core("min(cores, 4)", 0, 1, 4), POOL),
    unused("pullMessageThreadPoolNums", _per_core("16 + 2 x cores", 16, 2), POOL),
    unused("processReplyMessageThreadPoolNums", _per_core("16 + 2 x cores", 16, 2), POOL),
    unused("queryMessageThreadPoolNums", _per_core("8 + cores", 8, 1), POOL),
    unused("adminBrokerThreadPoolNums", 16, POOL),
    unused("clientManageThreadPoolNums", 32, POOL),
    unused("consumerManageThreadPoolNums", 32, POOL),
    unused("heartbeatThreadPoolNums", _per_core("min(cores, 32)", 0, 1, 32), POOL),
    unused(
        "endTransactionThreadPoolNums",
        Computed("max(8 + 2 x cores, 4 x send threads)", lambda _: max(8 + 2 * _cores(), 4 * min(_cores(), 4))),
        POOL,
    ),
    unused("sendThreadPoolQueueCapacity", 10_000, QUEUE),
    unused("putThreadPoolQueueCapacity", 10_000, QUEUE),
    unused("pullThreadPoolQueueCapacity", 100_000, QUEUE),
    unused("replyThreadPoolQueueCapacity", 10_000, QUEUE),
    unused("queryThreadPoolQueueCapacity", 20_000, QUEUE),
    unused("clientManagerThreadPoolQueueCapacity", 1_000_000, QUEUE),
    unused("consumerManagerThreadPoolQueueCapacity", 1_000_000, QUEUE),
    unused("heartbeatThreadPoolQueueCapacity", 50_000, QUEUE),
    unused("endTransactionPoolQueueCapacity", 100_000, QUEUE),
    unused("flushConsumerOffsetHistoryInterval", 60_000, "RocketMQ does not use it either"),
    unused("filterServerNums", 0, "RocketMQ removed its filter servers"),
    unused("highSpeedMode", False, "RocketMQ does not use it either"),
    unused("commercialEnable", True, "billing counters"),
    unused("commercialTimerCount", 1, "billing counters"),
    unused("commercialTransCount", 1, "billing counters"),
    unused("commercialBigCount", 1, "billing counters"),
    unused("commercialBaseCount", 1, "billing counters"),
    unused("maxDelayTime", 40, "RocketMQ does not use it either"),
    unused("transferMsgByHeap", True, "small answers are copied, large ones are sent from the file"),
    unused("autoDeleteUnusedStats", False, "counters of a deleted topic or group always go"),
    unused("isolateLogEnable", False, "logging goes where the logging configuration says"),
)


def _cores() -> int:
    return os.cpu_count() or 1


ROWS = in_group(
    Group.BROKER,
    (*IDENTITY, *ACCESS, *TOPICS_AND_GROUPS, *SERVICE, *FILTERS, *TRANSACTIONS, *REGISTRATION, *PROTECTION, *UNUSED),
    Program.BROKER,
)
