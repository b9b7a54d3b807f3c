"""From the notes of the audit's tasks to findings and a report for each topic. Plain Python: the notes are few."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from mqcore.spark.jobs.audit_checks import CLOCK, CRC, RUN, SPAN, Note

HEADINGS: Final = ("topic", "queues", "messages", "bytes", "first", "last", "crc", "gaps", "order", "repeats", "keys")
FINDINGS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. *count* is in messages, or in bytes for damage."""

    kind: str
    topic: str | None
    queue_id: int | None
    start: int
    end: int
    count: int
    text: str


@dataclass(slots=True)
class TopicReport:
    """What a topic has, and what is wrong with it: counts of messages, sizes in bytes, times in ms.

    *missing*: offsets without a message between others. *disordered*: messages that lie behind one of a higher offset
    of their queue. *repeated*: offsets that are there more than once. *duplicate_keys*: messages whose unique key
    another one of the topic has too.
    """

    topic: str
    queues: int = 0
    messages: int = 0
    size: int = 0
    first_time: int | None = None
    last_time: int | None = None
    crc_errors: int = 0
    missing: int = 0
    disordered: int = 0
    repeated: int = 0
    duplicate_keys: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is lost or damaged; duplicate keys are what a producer's retries leave, and no damage."""
        return not (self.crc_errors or self.missing or self.disordered or self.repeated)


@dataclass(slots=True)
class StoreReport:
    """One store: where its log lies, its topics, and the findings, of each kind at most FINDINGS_MAX."""

    store: str
    log_start: int
    log_end: int
    messages: int = 0
    damaged_bytes: int = 0
    clock_steps: int = 0
    topics: list[TopicReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every message is there and whole."""
        return not self.damaged_bytes and all(topic.is_clean for topic in self.topics)

    def to_json(self) -> dict[str, Any]:
        """Return the report as values of JSON."""
        return asdict(self) | {"is_clean": self.is_clean}


def make_report(
    store: str,
    bounds: tuple[int, int],
    notes: Iterable[Note],
    duplicates: Iterable[tuple[str, str, int]],
    behind_filler: Callable[[int], int],
) -> StoreReport:
    """Return the report on one store whose log lies in *bounds*.

    *duplicates*: topic, key, and how many messages have it. *behind_filler* gives the end of the unused end of a file
    that begins at an offset, or that offset.
    """
    report = StoreReport(store, *bounds)
    by_kind: dict[str, list[Note]] = defaultdict(list)
    for note in notes:
        by_kind[note.kind].append(note)
    topics: dict[str, TopicReport] = {}
    findings = [
        *_damage(report, by_kind[SPAN], behind_filler),
        *_queues(topics, by_kind[RUN]),
        *_crc_errors(topics, by_kind[CRC]),
        *_clock_steps(report, by_kind[CLOCK]),
        *_duplicate_keys(topics, duplicates),
    ]
    seen: Counter[str] = Counter()
    for finding in findings:
        seen[finding.kind] += 1
        if seen[finding.kind] <= FINDINGS_MAX:
            report.findings.append(finding)
    report.topics = sorted(topics.values(), key=lambda topic: topic.topic)
    return report


def _topic(topics: dict[str, TopicReport], name: str | None) -> TopicReport:
    return topics.setdefault(name or "", TopicReport(name or ""))


def _damage(report: StoreReport, spans: list[Note], behind_filler: Callable[[int], int]) -> Iterator[Finding]:
    ends = [(report.log_start, report.log_start)]
    for span in sorted(spans, key=lambda span: span.start):
        ends.append((span.start, span.end))
        report.messages += span.count
    ends.append((report.log_end, report.log_end))
    for (_, before), (start, _) in pairwise(ends):
        end = behind_filler(before) if before < start else before
        if end < start:
            report.damaged_bytes += start - end
            yield Finding("damage", None, None, end, start, start - end, f"{start - end} bytes hold no whole record")


def _queues(topics: dict[str, TopicReport], runs: list[Note]) -> Iterator[Finding]:
    by_queue: dict[tuple[str, int], list[Note]] = defaultdict(list)
    for run in runs:
        by_queue[run.topic or "", run.queue_id or 0].append(run)
    for (name, queue_id), own in sorted(by_queue.items()):
        topic = _topic(topics, name)
        topic.queues += 1
        topic.messages += sum(run.count for run in own)
        topic.size += sum(run.size for run in own)
        times = [topic.first_time] if topic.first_time is not None else []
        topic.first_time = min([*times, *(run.first_time for run in own)])
        topic.last_time = max(topic.last_time or 0, *(run.last_time for run in own))
        yield from _disorder(topic, queue_id, sorted(own, key=lambda run: run.place))
        yield from _coverage(topic, queue_id, sorted(own, key=lambda run: (run.start, run.end)))


def _disorder(topic: TopicReport, queue_id: int, runs: list[Note]) -> Iterator[Finding]:
    """Look at the runs of a queue in the order of the log: offsets must only grow."""
    highest = runs[0].end
    for run in runs[1:]:
        if run.start < highest:
            count = min(run.end, highest) - run.start
            topic.disordered += count
            text = f"behind offset {highest - 1} in the log (physical_offset={run.place})"
            yield Finding("order", topic.topic, queue_id, run.start, run.start + count, count, text)
        highest = max(highest, run.end)


def _coverage(topic: TopicReport, queue_id: int, runs: list[Note]) -> Iterator[Finding]:
    """Look at the runs of a queue by offset: each must be there once."""
    covered = runs[0].end
    for run in runs[1:]:
        if run.start > covered:
            count = run.start - covered
            topic.missing += count
            yield Finding("gap", topic.topic, queue_id, covered, run.start, count, f"{count} offsets without a message")
        elif run.start < covered:
            count = min(run.end, covered) - run.start
            topic.repeated += count
            yield Finding("repeat", topic.topic, queue_id, run.start, run.start + count, count, "there more than once")
        covered = max(covered, run.end)


def _crc_errors(topics: dict[str, TopicReport], notes: list[Note]) -> Iterator[Finding]:
    for note in sorted(notes, key=lambda note: note.place):
        _topic(topics, note.topic).crc_errors += 1
        text = f"body differs from its CRC (physical_offset={note.place})"
        yield Finding("crc", note.topic, note.queue_id, note.start, note.start + 1, 1, text)


def _clock_steps(report: StoreReport, notes: list[Note]) -> Iterator[Finding]:
    for note in sorted(notes, key=lambda note: note.place):
        report.clock_steps += 1
        text = f"the broker's clock stepped back by {note.start} ms (physical_offset={note.place})"
        yield Finding("clock", note.topic, note.queue_id, note.place, note.place, 1, text)


def _duplicate_keys(topics: dict[str, TopicReport], duplicates: Iterable[tuple[str, str, int]]) -> Iterator[Finding]:
    for name, key, count in duplicates:
        _topic(topics, name).duplicate_keys += count
        yield Finding("key", name, None, 0, 0, count, f"{count} messages have the unique key {key}")


def table(report: StoreReport) -> str:
    """Return the report as text: a line for each topic, then the damage, then the first findings."""
    rows = [HEADINGS, *[_row(topic) for topic in report.topics]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [f"store {report.store}, log [{report.log_start}, {report.log_end}), {report.messages} messages"]
    for row in rows:
        cells = [cell.ljust(width) if column == 0 else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths, strict=True))]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
    lines.append(f"damaged: {report.damaged_bytes} bytes; clock steps: {report.clock_steps}; "
                 f"{'clean' if report.is_clean else 'NOT CLEAN'}")  # fmt: skip
    return "\n".join(lines)


def _row(topic: TopicReport) -> tuple[str, ...]:
    numbers = (topic.crc_errors, topic.missing, topic.disordered, topic.repeated, topic.duplicate_keys)
    return (
        topic.topic, str(topic.queues), str(topic.messages), str(topic.size), _time(topic.first_time),
        _time(topic.last_time), *map(str, numbers),
    )  # fmt: skip


def _time(ms: int | None) -> str:
    if ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
    except (OverflowError, ValueError):
        return f"{ms} ms"
