"""Wrong requests, made of right ones: fields left out and out of bounds, bodies of another kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mqcore.codes import RequestCode as Code
from mqcore.protocol.headers import REQUEST_HEADERS, FieldType

from .scripts import Request

TEXTS = {"empty": ""}
NUMBERS = {"no number": "x1", "negative": "-7", "too large": "99999999999999999999"}
BODIES = {"no body": b"", "half a JSON": b'{"a":', "a list": b"[]", "no UTF-8": b"\xff\xfe{}"}
# Whose answer takes long, or changes what later ones find.
ONCE = frozenset({Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG})


def wrong_ones(request: Request) -> Iterator[Request]:
    """Variants of *request*, each wrong at one place."""
    header = REQUEST_HEADERS.get(request.code)
    for field in header.fields if header is not None else ():
        if field.wire_name not in request.fields:
            continue
        yield request.but(f"without {field.wire_name}", **{field.wire_name: None})
        is_number = field.type in (FieldType.INT, FieldType.LONG)
        for kind, text in (NUMBERS if is_number else TEXTS).items():
            yield request.but(f"{field.wire_name} {kind}", **{field.wire_name: text})
    if request.body.startswith(b"{") and request.code not in ONCE:
        for kind, body in BODIES.items():
            yield replace(request, name=f"{request.name}, {kind}", body=body)


def variants(script: tuple[Request, ...]) -> Iterator[Request]:
    """The wrong variants of the first request of each code in *script*."""
    met = set()
    for request in script:
        if (request.code, request.to) not in met:
            met.add((request.code, request.to))
            yield from wrong_ones(request)
