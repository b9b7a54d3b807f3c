"""Which cluster a command speaks to, and how it is let in: decided once, with where each answer came from.

From the strongest: -n; --context; the environment (MQCORE_NAMESRV, NAMESRV_ADDR, ROCKETMQ_NAMESRV_ADDR, MQCORE_URL);
the context that MQCORE_CONTEXT names; the current context; the file that MQCORE_CONFIG names; 127.0.0.1:9876.
Keys and TLS of a context go with its address: they are left aside where another one is used, unless --context asks
for them. Variables such as MQCORE_CLIENT_ACCESS_KEY win over a context, and --context wins over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqcore.admin.contexts import ClusterContext, load_contexts
from mqcore.client.settings.classes import NAME_SERVER_VARIABLES
from mqcore.client.settings.configuration import (
    FILE_VARIABLE,
    URL_VARIABLE,
    from_environment,
    from_file,
    from_url,
    is_url,
)

DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
CONTEXT_VARIABLE: Final = "MQCORE_CONTEXT"
KEYS: Final = frozenset({"access_key", "secret_key", "security_token"})
"""These belong together: half of a pair is never taken from somewhere else."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Name servers, *source* in words, and the settings of ClientSettings that win over environment and file."""

    name_servers: str
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    context: str | None = None
    """The context that is in use."""


def find_connection(option: str | None, context_option: str | None, environment: Mapping[str, str]) -> Connection:
    """Return what -n, --context and *environment* say. Raises ConfigError, or NotFoundError for no such context."""
    by_flag = None if context_option is None else load_contexts(environment).get(context_option)
    settings: dict[str, Any] = {} if by_flag is None else dict(by_flag.settings)
    if option:
        if is_url(option):
            found = from_url(option)
            settings |= found.values["client"]
            option = ";".join(found.name_servers)
        return Connection(option, "option -n", settings, context_option)
    if by_flag is not None:
        return Connection(by_flag.name_servers, f"context {context_option}", settings, context_option)
    said = from_environment(environment)
    if said.name_servers:
        variables = (*NAME_SERVER_VARIABLES, URL_VARIABLE)
        variable = next(name for name in variables if environment.get(name))
        return Connection(";".join(said.name_servers), f"environment variable {variable}")
    return _below_environment(said.values["client"], environment)


def _below_environment(said: Mapping[str, object], environment: Mapping[str, str]) -> Connection:
    contexts = load_contexts(environment)
    name = environment.get(CONTEXT_VARIABLE) or contexts.current
    if name:
        which = f"context {name}, of {CONTEXT_VARIABLE if environment.get(CONTEXT_VARIABLE) else contexts.path}"
        context = contexts.get(name)
        return Connection(context.name_servers, which, _without(context, said), name)
    path = environment.get(FILE_VARIABLE)
    if path and (found := from_file(path).name_servers):
        return Connection(";".join(found), f"configuration file {path}")
    return Connection(DEFAULT_NAME_SERVER, "the default, as nothing else was said")


def _without(context: ClusterContext, said: Mapping[str, object]) -> dict[str, Any]:
    """Return the context's settings that the environment does not say."""
    taken = set(said) | (KEYS if KEYS & set(said) else set())
    return {name: value for name, value in context.settings.items() if name not in taken}
