"""What the broker process hands a worker at its start: settings, its row on the board, descriptors.

It travels in an unnamed memory file whose descriptor is the worker's only argument.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from mqcore.config import SettingValues


@dataclass(frozen=True, slots=True)
class Peer:
    """Another worker, as seen by one that may wake it: its row and its eventfd."""

    row: int
    wake: int


@dataclass(frozen=True, slots=True)
class Handover:
    """Everything a worker needs to start. Its descriptors are open in the worker under the numbers that stand here."""

    kind: str
    number: int
    row: int
    parent_pid: int
    shared_fd: int
    wake: int
    link: int
    settings: str
    settings_version: int = 0
    sheet: int = -1
    time_sheet: int = -1
    certificates: int = -1
    listeners: list[tuple[int, bool]] = field(default_factory=list)
    ha_listener: int = -1
    senders: list[Peer] = field(default_factory=list)
    pullers: list[Peer] = field(default_factory=list)
    reput: Peer = Peer(0, -1)
    flush: Peer = Peer(0, -1)
    ha: Peer = Peer(0, -1)
    timer: Peer = Peer(0, -1)
    broker: Peer = Peer(0, -1)

    def descriptors(self) -> list[int]:
        """The descriptors that the child inherits."""
        peers = [*self.senders, *self.pullers, self.reput, self.flush, self.ha, self.timer, self.broker]
        found = {
            self.shared_fd,
            self.wake,
            self.link,
            self.sheet,
            self.time_sheet,
            self.certificates,
            self.ha_listener,
            *(peer.wake for peer in peers),
            *(fd for fd, _ in self.listeners),
        }
        return sorted(fd for fd in found if fd >= 0)

    def moved(self, numbers: Mapping[int, int]) -> Handover:
        """Return it as it is where the descriptors have other *numbers*, by those that stand here."""

        def peer(there: Peer) -> Peer:
            return Peer(there.row, numbers[there.wake])

        numbers = {-1: -1, **numbers}
        return replace(
            self,
            shared_fd=numbers[self.shared_fd],
            wake=numbers[self.wake],
            link=numbers[self.link],
            sheet=numbers[self.sheet],
            time_sheet=numbers[self.time_sheet],
            certificates=numbers[self.certificates],
            listeners=[(numbers[listener], is_vip) for listener, is_vip in self.listeners],
            ha_listener=numbers[self.ha_listener],
            senders=[peer(one) for one in self.senders],
            pullers=[peer(one) for one in self.pullers],
            reput=peer(self.reput),
            flush=peer(self.flush),
            ha=peer(self.ha),
            timer=peer(self.timer),
            broker=peer(self.broker),
        )

    def loaded_settings(self) -> SettingValues:
        return SettingValues.from_json(self.settings)

    def write(self) -> int:
        """Put it into a memory file; the caller closes the descriptor once the child has it."""
        fd = os.memfd_create("mqcore-handover", os.MFD_CLOEXEC)
        os.write(fd, json.dumps(asdict(self)).encode())
        return fd

    @staticmethod
    def read(fd: int) -> Handover:
        """Take it out of the memory file *fd* and close that."""
        with os.fdopen(fd, "rb") as source:
            source.seek(0)
            values = json.loads(source.read())
        for name in ("senders", "pullers"):
            values[name] = [Peer(**peer) for peer in values[name]]
        for name in ("reput", "flush", "ha", "timer", "broker"):
            values[name] = Peer(**values[name])
        values["listeners"] = [(listener, is_vip) for listener, is_vip in values["listeners"]]
        return Handover(**values)
