"""Settings of clients, producers and consumers: their classes, where values come from, and the page about them."""

from typing import TYPE_CHECKING

from mqcore.lazy_names import lazy_names

if TYPE_CHECKING:
    from mqcore.client.settings.classes import (
        ClientSettings,
        ConsumeFromWhere,
        ConsumerSettings,
        MessageModel,
        ProducerSettings,
    )

__all__ = ["ClientSettings", "ConsumeFromWhere", "ConsumerSettings", "MessageModel", "ProducerSettings"]

# The modules of this room stand below these names, which are for programs that import them from here.
__getattr__ = lazy_names(globals(), dict.fromkeys(__all__, "mqcore.client.settings.classes"))
