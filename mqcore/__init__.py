"""mqcore: a broker, a name server and a client library for Apache RocketMQ's protocol and store format."""

from mqcore.version import __version__

__all__ = ["__version__"]
