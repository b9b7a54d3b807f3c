"""Administration: typed calls, and the command line ``mqcore``."""

from mqcore.admin.api import Admin

__all__ = ["Admin"]
