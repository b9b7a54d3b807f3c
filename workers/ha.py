"""The ha worker: the commit log to this broker's slaves, and of a slave from its master. Its loop is _fast/ha/loop.pyx.

It is started when the first slave knocks: a master that nobody copies has no such process. A slave's connects when the
broker process tells it where to, which it does anew after each connection that has ended.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
import time
from typing import Any

from mqcore import layout
from mqcore._fast.ha.loop import HaLoop
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import BrokerRole, FlushDiskType, SettingValues
from mqcore.readiness import WRITABLE, wait_ready
from mqcore.store.paths import StorePaths
from mqcore.workers.handover import Handover
from mqcore.workers.settings_sheet import SettingsFollower

logger = logging.getLogger(__name__)

MASTER_STATE = layout.constants("MasterState")
CONNECT_TIMEOUT_S = 3.0
CONNECT_CHECK_S = 0.02


def live_options(settings: SettingValues) -> dict[str, Any]:
    """The options of the loop that may change while it runs."""
    return {
        "heartbeat_ms": settings.store.ha_send_heartbeat_interval_ms,
        "silence_ms": settings.store.ha_housekeeping_interval_ms,
        "frame_size_max": settings.store.ha_transfer_batch_size,
        "bytes_per_s": settings.store.max_ha_transfer_byte_in_second if settings.store.ha_flow_control_enable else 0,
        "from_first_file": settings.mqcore.ha_sync_from_first_file,
        "acks_flushed": settings.failover.is_group and settings.failover.ha_ack_flushed,
        # As a send worker has it.
        "wakes_flush": settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        or not settings.store.flush_commit_log_timed,
    }


def run(settings: SettingValues, segment: SharedSegment, handover: Handover) -> None:
    """Serve slaves until the broker process says stop."""
    store = settings.store
    loop = HaLoop(
        segment,
        {
            "row": handover.row,
            "wake": handover.wake,
            "link": handover.link,
            "listener": handover.ha_listener,
            "senders": [(peer.row, peer.wake) for peer in handover.senders],
            "broker": (handover.broker.row, handover.broker.wake),
            "commit_log": StorePaths.of(store).log,
            "commit_log_file_size": store.mapped_file_size_commit_log,
            "reput": (handover.reput.row, handover.reput.wake),
            "flush": (handover.flush.row, handover.flush.wake),
            "is_slave": store.broker_role is BrokerRole.SLAVE,
            "in_group": settings.failover.is_group,
            "waits_for_slaves": store.broker_role is BrokerRole.SYNC_MASTER,
            **live_options(settings),
        },
    )
    follower = SettingsFollower(segment, handover, lambda changed: loop.use(live_options(changed)))
    master = Master(loop, segment)
    while loop.run(follower.version):
        if follower.has_news:
            follower.follow()
        master.follow()


class Master:
    """The connection to the master, as far as it is rare."""

    def __init__(self, loop: HaLoop, segment: SharedSegment) -> None:
        self._loop = loop
        self._segment = segment
        told = segment.master()
        self._version = -1 if told is None else told[0]

    def follow(self) -> None:
        """Leave a master that is lost, and connect to the one that is told."""
        told = self._segment.master()
        if told is None:
            return  # it is being told
        version, address, port, start, term = told
        if version == self._version:
            self._note_end(self._loop.leave_master())
            return
        self._version = version
        self._loop.forget_master(version)
        if port == 0:
            return
        self._segment.set("master_state", MASTER_STATE["CONNECTING"])
        connection = self._connected(str(ipaddress.ip_address(address)), port)
        if connection is None:
            self._segment.set("master_state", MASTER_STATE["UNKNOWN"])
        else:
            self._loop.join_master(connection.detach(), start, term)

    def _connected(self, host: str, port: int) -> socket.socket | None:
        """A connection to the master, None if it is not to be had, or another master is told meanwhile."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            self._connect(connection, host, port)
        except OSError as error:
            connection.close()
            logger.warning("master not reached master=%s:%d error=%s", host, port, error)
            return None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        logger.info("copying from master=%s:%d end=%d", host, port, self._segment.get("wrote_offset"))
        return connection

    def _connect(self, connection: socket.socket, host: str, port: int) -> None:
        error = connection.connect_ex((host, port))
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while error == errno.EINPROGRESS:
            if self._segment.get("master_version") != self._version:
                raise InterruptedError(errno.EINTR, "it is no longer the master to be copied from")
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            if wait_ready([connection], CONNECT_CHECK_S, WRITABLE):
                error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))

    def _note_end(self, why: str | None) -> None:
        if why is not None:
            logger.warning("copying is over end=%d why=%s", self._segment.get("wrote_offset"), why)
