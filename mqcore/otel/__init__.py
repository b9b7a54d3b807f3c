"""OpenTelemetry: metrics and spans of a client, and trace contexts in messages. Needs the extra ``otel``.

    from mqcore import otel

    otel.instrument(mq)                    # one client, before it makes producers and consumers
    otel.Instrumentor().instrument()       # or every client that is made from now on

The names are those of OpenTelemetry's conventions for messaging. Nothing is imported of OpenTelemetry by a program that
does not import this module, and a client that is not instrumented does nothing for it.
"""

from __future__ import annotations

try:
    import opentelemetry.metrics  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mqcore.otel needs opentelemetry-api: pip install 'mqcore[otel]'", name=error.name
    ) from error

from mqcore.otel.instrumentation import Instrumentor, instrument, processing
from mqcore.otel.spans import context_of

__all__ = ["Instrumentor", "context_of", "instrument", "processing"]
