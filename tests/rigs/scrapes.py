"""What a broker's metrics port says, as Prometheus reads it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

DEADLINE_S = 60.0

Series = dict[str, list[tuple[dict[str, str], float]]]
"""By a metric's name: the labels of each series, and its value."""


def series_of(text: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def by(series: Series, name: str, *labels: str) -> dict[str, float]:
    """The series of a metric by the values of *labels*, which tell them apart."""
    found = {" ".join(given[label] for label in labels): value for given, value in series.get(name, [])}
    assert len(found) == len(series.get(name, [])), f"{labels} do not tell the series of {name} apart"
    return found


def get(port: int, path: str) -> tuple[int, str]:
    """The status and the body of an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(port: int) -> Series:
    status, text = get(port, "/metrics")
    assert status == 200, text
    return series_of(text)


def asked(port: int, path: str) -> dict[str, Any]:
    """What /healthz or /readyz says."""
    return dict(json.loads(get(port, path)[1]))
