"""The endpoint, where the settings want one: what it needs is imported then, and not with every broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqcore.config import Settings
from mqcore.errors import ConfigError

if TYPE_CHECKING:
    from mqcore.broker.metrics.broker_facts import Observed
    from mqcore.broker.metrics.endpoint import MetricsEndpoint


async def start_endpoint(settings: Settings, observe: Callable[[], Observed | None]) -> MetricsEndpoint | None:
    """Serve what *observe* gives if ``metricsPort`` is set; None if it is not.

    Raises ConfigError if the port cannot be had, or prometheus-client is not here.
    """
    port = settings.mqcore.metrics_port
    if port == 0:
        return None
    try:
        from mqcore.broker.metrics.endpoint import MetricsEndpoint
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        wanted = "prometheus-client, which is not here: pip install 'mqcore[metrics]'"
        raise ConfigError(f"metricsPort: got {port}, wanted {wanted}") from error
    endpoint = MetricsEndpoint(settings, observe)
    await endpoint.start()
    return endpoint
