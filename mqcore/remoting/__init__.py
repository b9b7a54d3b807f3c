"""What ``mqcore.transport`` was called: its modules are imported by the old names as before, with a warning."""

from typing import Final

from mqcore import moved_modules

MOVED: Final = {"mqcore.remoting.address": "mqcore.address"} | {
    f"mqcore.remoting.{name}": f"mqcore.transport.{name}"
    for name in (
        "client",
        "client_tls",
        "connection",
        "descriptors",
        "door",
        "exposure",
        "pem",
        "server",
        "signing",
        "tls",
        "tls_watch",
    )
}
"""The whole name that a module had, and its name now."""

moved_modules.install(MOVED)
