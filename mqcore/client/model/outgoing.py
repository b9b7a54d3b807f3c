"""A message, or a batch, on its way to a broker."""

from __future__ import annotations

from dataclasses import dataclass

from mqcore.protocol import properties as names


@dataclass(slots=True)
class Outgoing:
    """A message, or a batch, as it goes over the wire: *body* is compressed or a batch already, as *sys_flag* says."""

    topic: str
    body: bytes
    properties: dict[str, str]
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False
    is_reply: bool = False
    ids: tuple[str, ...] = ()
    """The unique ids of the members of a batch."""

    @property
    def msg_id(self) -> str:
        """The unique id, or those of a batch joined by commas."""
        return ",".join(self.ids) or self.properties.get(names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "")
