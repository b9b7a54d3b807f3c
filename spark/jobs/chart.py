"""A chart of latencies and failures over hours, as SVG, without any library.

One panel per kind, topic and group: lines for the percentiles, bars for failures. A single hour is drawn as points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

WIDTH: Final = 900
PANEL_HEIGHT: Final = 200
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 70, 150, 34, 34
SERIES: Final = (("p50Ms", "p50", "#2a7f62"), ("p95Ms", "p95", "#d9822b"), ("p99Ms", "p99", "#b5322f"))
FAILURE_COLOUR: Final = "#888888"
TICKS: Final = 4
HOUR_LABELS_MAX: Final = 8
BAR_WIDTH_MAX: Final = 18.0

Row = Mapping[str, Any]


def render(rows: Sequence[Row]) -> str:
    """Return the SVG of a report's *rows* (kind, topic, group, hour, count, failures, p50Ms, p95Ms, p99Ms)."""
    hours = sorted({str(row["hour"]) for row in rows})
    panels: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        panels.setdefault((str(row["kind"]), str(row["topic"]), str(row["group"])), []).append(row)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{PANEL_HEIGHT * len(panels)}">',
        '<g font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, name in enumerate(sorted(panels)):
        parts.append(f'<g transform="translate(0,{number * PANEL_HEIGHT})">')
        parts += _panel(" · ".join(name), panels[name], hours)
        parts.append("</g>")
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _panel(title: str, rows: Sequence[Row], hours: Sequence[str]) -> list[str]:
    by_hour = {str(row["hour"]): row for row in rows}
    top_ms = max(1.0, *(float(row[name]) for row in rows for name, _, _ in SERIES))
    left, right = MARGIN_LEFT, WIDTH - MARGIN_RIGHT
    bottom, height = PANEL_HEIGHT - MARGIN_BOTTOM, PANEL_HEIGHT - MARGIN_BOTTOM - MARGIN_TOP
    step = (right - left) / max(1, len(hours))
    at = {hour: left + step * (index + 0.5) for index, hour in enumerate(hours)}
    parts = [f'<text x="{left}" y="20" font-size="13" font-weight="bold">{escape(title)}</text>']
    for tick in range(TICKS + 1):
        y = bottom - height * tick / TICKS
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{top_ms * tick / TICKS:g} ms</text>')
    parts += _hour_labels(hours, at, bottom)
    parts += _failure_bars(by_hour, at, bottom, height, min(BAR_WIDTH_MAX, step * 0.6))
    for index, (name, label, colour) in enumerate(SERIES):
        points = [
            (at[hour], bottom - height * float(by_hour[hour][name]) / top_ms) for hour in hours if hour in by_hour
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
        parts.append(f'<text x="{right + 12}" y="{MARGIN_TOP + 14 * index + 8}" fill="{colour}">{label}</text>')
    failures = sum(int(row["failures"]) for row in rows)
    count = sum(int(row["count"]) for row in rows)
    below = MARGIN_TOP + 14 * len(SERIES) + 8
    parts.append(f'<text x="{right + 12}" y="{below}" fill="{FAILURE_COLOUR}">{failures} of {count} failed</text>')
    return parts


def _hour_labels(hours: Sequence[str], at: Mapping[str, float], bottom: float) -> list[str]:
    every = -(-len(hours) // HOUR_LABELS_MAX) or 1
    return [
        f'<text x="{at[hour]:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(hour[5:])}</text>'
        for hour in hours[::every]
    ]


def _failure_bars(
    by_hour: Mapping[str, Row], at: Mapping[str, float], bottom: float, height: float, width: float
) -> list[str]:
    """Return a bar per hour with failures, its height their share of all."""
    parts = []
    for hour, row in sorted(by_hour.items()):
        if int(row["failures"]):
            size = height * int(row["failures"]) / int(row["count"])
            parts.append(
                f'<rect x="{at[hour] - width / 2:.1f}" y="{bottom - size:.1f}" width="{width:.1f}" '
                f'height="{size:.1f}" fill="{FAILURE_COLOUR}" fill-opacity="0.45"/>'
            )
    return parts
