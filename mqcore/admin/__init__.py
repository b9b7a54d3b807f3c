"""The command line ``mqcore``. The typed calls under it are in mqcore.client.admin; ``Admin`` is their asyncio face."""

from mqcore.client.admin import Admin

__all__ = ["Admin"]
