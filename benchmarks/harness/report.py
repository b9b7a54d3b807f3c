"""Results as text tables and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.compare import BARS, Bar, LoadComparison, median
from benchmarks.harness.loads import Measurement

HEADINGS = (
    "load",
    "broker",
    "msg/s median [min..max]",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "CPU us/msg",
    "replicas us",
    "load us",
    "others",
    "cores ns",
)
RATIO_METRICS = ("messages_per_s", "p50_us", "p99_us", "p999_us", "broker_cpu_us", "replica_cpu_us", "load_cpu_us")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return *rows* under *headings* in columns: the first two to the left, figures to the right."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(headings), *(line(row) for row in rows)])


def figure(value: float | None) -> str:
    """Return a number with three significant digits or as a whole number; a dash if it was not measured."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def figure_of_ratio(ratio: float | None) -> str:
    """Return a ratio with three significant digits; a dash if it was not measured."""
    return "-" if ratio is None else f"{ratio:.3g}"


def summary_row(label: str, measurements: Sequence[Measurement]) -> list[str]:
    """Return the medians of several repetitions of one load on one broker, as cells under HEADINGS."""
    rates = [measurement.messages_per_s for measurement in measurements]
    has_cpu = all(measurement.broker_cpu_us is not None for measurement in measurements)
    has_replicas = all(measurement.replica_cpu_us is not None for measurement in measurements)
    distances = [distance for measurement in measurements for distance in measurement.core_distances_ns]
    return [
        measurements[0].load,
        label,
        f"{median('messages_per_s', measurements):,.0f} [{min(rates):,.0f}..{max(rates):,.0f}]",
        *(figure(median(metric, measurements)) for metric in ("p50_us", "p99_us", "p999_us")),
        figure(median("broker_cpu_us", measurements) if has_cpu else None),
        figure(median("replica_cpu_us", measurements) if has_replicas else None),
        figure(median("load_cpu_us", measurements)),
        f"{max(measurement.others_share for measurement in measurements):.1%}",
        f"{min(distances):.0f}..{max(distances):.0f}" if distances else "-",
    ]


def repetition_line(measurement: Measurement) -> str:
    """Return one repetition on one line, for reading along."""
    replicas = "" if measurement.replica_cpu_us is None else f", replicas {figure(measurement.replica_cpu_us)} us/msg"
    return (
        f"{measurement.load}: {measurement.messages_per_s:,.0f} msg/s, p50 {figure(measurement.p50_us)} us,"
        f" p99 {figure(measurement.p99_us)} us, CPU {figure(measurement.broker_cpu_us)} us/msg{replicas},"
        f" load {figure(measurement.load_cpu_us)} us/msg, others {measurement.others_share:.1%},"
        f" kernel {measurement.kernel_share:.1%},"
        f" cores {', '.join(f'{distance:.0f}' for distance in measurement.core_distances_ns)} ns"
        + (f", refused {measurement.refused}" if measurement.refused else "")
    )


def comparison_table(labels: tuple[str, str], comparisons: Sequence[LoadComparison]) -> str:
    """Return three rows per load: each broker, and the ratios of their medians."""
    rows = []
    for comparison in comparisons:
        if not comparison.kept:
            rows.append([str(comparison.load), "no quiet pair", *[""] * (len(HEADINGS) - 2)])
            continue
        rows.append(summary_row(labels[0], [pair.first for pair in comparison.kept]))
        rows.append(summary_row(labels[1], [pair.second for pair in comparison.kept]))
        ratios = [figure_of_ratio(comparison.ratio(metric)) for metric in RATIO_METRICS]
        rows.append(
            ["", f"ratio of {len(comparison.kept)} pairs, {dropped_count(comparison)} dropped", *ratios, "", ""]
        )
    return table(HEADINGS, rows)


def dropped_count(comparison: LoadComparison) -> int:
    """How many pairs were too noisy."""
    return len(comparison.pairs) - len(comparison.kept)


def bar_results(comparisons: Sequence[LoadComparison], role: str) -> list[tuple[Bar, float | None]]:
    """Return the bars of the loads that were run on masters of *role*, each with its ratio, or None without one."""
    by_load = {str(comparison.load): comparison for comparison in comparisons}
    return [(bar, by_load[bar.load].ratio(bar.metric)) for bar in BARS if bar.load in by_load and bar.role == role]


def bar_line(bar: Bar, ratio: float | None) -> str:
    """Return one bar as a sentence."""
    wanted = f"at least {bar.at_least:g}" if bar.at_least is not None else f"at most {bar.at_most:g}"
    if ratio is None:
        return f"{bar.load} {bar.metric}: wanted {wanted}, not measured"
    return f"{bar.load} {bar.metric}: {ratio:.3g}, wanted {wanted}: {'met' if bar.is_met(ratio) else 'NOT MET'}"


def machine() -> dict[str, Any]:
    """Return what the figures depend on besides the brokers."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": models[0] if models else platform.machine(),
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def as_json(
    settings: dict[str, Any],
    labels: Sequence[str],
    comparisons: Sequence[LoadComparison],
    bars: Sequence[tuple[Bar, float | None]],
) -> dict[str, Any]:
    """Return everything that was measured, dropped pairs included, ready for json.dumps."""
    return {
        "machine": machine(),
        "settings": settings,
        "brokers": list(labels),
        "loads": [
            {
                "load": str(comparison.load),
                "ratios": {metric: comparison.ratio(metric) for metric in RATIO_METRICS},
                "pairs": [asdict(pair) for pair in comparison.pairs],
            }
            for comparison in comparisons
        ],
        "bars": [
            {**asdict(bar), "ratio": ratio, "met": ratio is not None and bar.is_met(ratio)} for bar, ratio in bars
        ],
    }
