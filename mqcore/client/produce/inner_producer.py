"""What a session sends for itself: copies of messages that failed, and of dead letters."""

from __future__ import annotations

from mqcore.client.produce.core import ProducerCore
from mqcore.client.session.session import Session
from mqcore.client.settings.classes import ProducerSettings
from mqcore.protocol.names import CLIENT_INNER_PRODUCER_GROUP


def inner_producer(session: Session) -> ProducerCore:
    """Return what ``Session.shared`` is asked for: the producer of the client's own group, which every client has."""
    return ProducerCore(session, CLIENT_INNER_PRODUCER_GROUP, ProducerSettings())
