"""The rows of RocketMQ's NettyServerConfig, NettyClientConfig and NamesrvConfig."""

from __future__ import annotations

import os

from mqcore.config.defaults import config_store_path, kv_config_path, listen_port
from mqcore.config.table import (
    BY_NAMESRV,
    Computed,
    Group,
    Program,
    Unit,
    flag,
    in_group,
    number,
    refusing,
    text,
    unused,
)

EPOLL = "one epoll loop per worker process"
CALLS = "calls that the broker makes are few and bounded by their time-outs"
SOCKETS = "the kernel tunes socket buffers"

SERVER = (
    number("listenPort", listen_port, "port for clients; 0 takes any free port", maximum=65_534),
    number(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "a connection idle for so long is closed",
        unit=Unit.SECONDS,
        minimum=1,
    ),
    number("serverSocketBacklog backlog", 1024, "connections that may wait to be accepted", minimum=1, maximum=65_535),
    unused("serverWorkerThreads", 8, EPOLL),
    unused("serverCallbackExecutorThreads", 0, EPOLL),
    unused("serverSelectorThreads", 3, EPOLL),
    unused("serverOnewaySemaphoreValue", 256, CALLS),
    unused("serverAsyncSemaphoreValue", 64, CALLS),
    unused("serverSocketSndBufSize", 0, SOCKETS),
    unused("serverSocketRcvBufSize", 0, SOCKETS),
    unused("writeBufferHighWaterMark", 0, "see connectionWriteBufferBytes; RocketMQ's clients have it too"),
    unused("writeBufferLowWaterMark", 0, "see connectionWriteBufferBytes; RocketMQ's clients have it too"),
    unused("serverPooledByteBufAllocatorEnable", True, "there is no Netty"),
    unused("useEpollNativeSelector", False, EPOLL),
    unused("enableShutdownGracefully", False, "a stop always lets requests in progress finish"),
    unused("shutdownWaitTimeSeconds", 30, "a stop always lets requests in progress finish"),
)

CLIENT = (
    unused("clientWorkerThreads", 4, EPOLL),
    unused("clientCallbackExecutorThreads", Computed("cores", lambda _: os.cpu_count() or 1), EPOLL),
    unused("clientOnewaySemaphoreValue", 65_535, CALLS),
    unused("clientAsyncSemaphoreValue", 65_535, CALLS),
    unused("connectTimeoutMillis", 3_000, CALLS),
    unused("channelNotActiveInterval", 60_000, "RocketMQ does not use it either"),
    unused("clientChannelMaxIdleTimeSeconds", 120, CALLS),
    unused("clientSocketSndBufSize", 0, SOCKETS),
    unused("clientSocketRcvBufSize", 0, SOCKETS),
    unused("clientPooledByteBufAllocatorEnable", False, "there is no Netty"),
    unused("clientCloseSocketIfTimeout", True, CALLS),
    unused("disableCallbackExecutor", False, EPOLL),
    unused("disableNettyWorkerGroup", False, EPOLL),
)

NAMESRV = (
    text("kvConfigPath", kv_config_path, "file of the name server's key-value tables"),
    text(
        "configStorePath",
        config_store_path,
        "file that a remote update of the name server's settings is written to; a name server alone that is started"
        " with -c writes that file instead",
    ),
    flag("orderMessageEnable", False, "add the order configuration of a topic to its route", BY_NAMESRV),
    refusing(
        unused("clusterTest", False, "looks unknown topics up in another environment"),
        "true",
        "mqcore's name server does not ask other environments",
    ),
    unused("productEnvName", "center", "only clusterTest looks at it"),
)

ROWS = (
    *in_group(Group.NETTY_SERVER, SERVER, Program.BROKER, Program.NAMESRV),
    *in_group(Group.NETTY_CLIENT, CLIENT, Program.BROKER, Program.NAMESRV),
    *in_group(Group.NAMESRV, NAMESRV, Program.BROKER, Program.NAMESRV),
)
