"""mqcore: a broker, a name server and a client library for Apache RocketMQ's protocol and store format."""

import logging

from mqcore.version import __version__

__all__ = ["__version__"]

# A library says nothing unless the program sets up logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())
