"""Timer files that are lost or damaged: they follow from the commit log, and are built anew; nothing comes twice."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.layout import TIMER_SLOT, TIMER_SLOT_COUNT, TIMER_UNIT
from tests.integration.test_timers import SMALL, accepted, received, send
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import GET_BROKER_RUNTIME_INFO, call
from tests.waiting import wait_until

RECALL_MESSAGE, GET_TIMER_METRICS = 370, 61
UNITS_A_FILE = 80
PROPERTIES = SMALL | {"mappedFileSizeTimerLog": str(TIMER_UNIT.size * UNITS_A_FILE + 20)}
HOUR_MS = "3600000"
EARLY, LATE, RECALLED = 60, 200, 10


def log_files(store: Path) -> list[Path]:
    return sorted((store / "timerlog").iterdir())


def lose_wheel(store: Path) -> None:
    (store / "timerwheel").unlink()


def tear_wheel(store: Path) -> None:
    """A slot ahead names a unit that the log has not, as after a power cut."""
    second = int(time.time()) + 60
    with (store / "timerwheel").open("r+b") as wheel:
        wheel.seek(second % TIMER_SLOT_COUNT * TIMER_SLOT.size)
        wheel.write(TIMER_SLOT.struct.pack(second, 1 << 40, 1 << 40, 1, 0))


def cut_log(store: Path) -> None:
    """The newest file of the log ends after a few units."""
    with log_files(store)[-1].open("r+b") as file:
        file.seek(TIMER_UNIT.size * 5)
        file.write(bytes(TIMER_UNIT.size * (UNITS_A_FILE - 5)))


def lose_first(store: Path) -> None:
    log_files(store)[0].unlink()


def lose_first_and_wheel(store: Path) -> None:
    lose_first(store)
    lose_wheel(store)


def lose_last(store: Path) -> None:
    log_files(store)[-1].unlink()


def lose_log(store: Path) -> None:
    for path in log_files(store):
        path.unlink()


def spoil_unit(store: Path) -> None:
    """One unit of a chain is of another slot."""
    with log_files(store)[0].open("r+b") as file:
        file.seek(TIMER_UNIT.size * 70 + 24)
        file.write(struct.pack(">i", 5))


def lose_all(store: Path) -> None:
    """As the store of a slave is, which has the commit log and nothing else of this."""
    lose_log(store)
    lose_wheel(store)
    for name in ("config/timercheck", "mqcore/timers"):
        (store / name).unlink()


FROM_LOG, FROM_TOPIC = "building it anew from the log", "building it anew from the timer topic"
# In this order: each finds the files as the one before has left them, and a log that is built anew has less files.
DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (lose_wheel, ""),
    (tear_wheel, FROM_LOG),
    (cut_log, FROM_TOPIC),
    (lose_first, FROM_TOPIC),
    (spoil_unit, FROM_TOPIC),
    (lose_last, FROM_TOPIC),
    (lose_first_and_wheel, FROM_TOPIC),
    (lose_log, FROM_TOPIC),
    (lose_all, ""),
]


def waiting(broker: MqcoreBroker) -> int:
    return int(call(broker.broker_address, GET_BROKER_RUNTIME_INFO).json()["table"]["timerCongestNum"])


def behind(broker: MqcoreBroker) -> int:
    return int(call(broker.broker_address, GET_BROKER_RUNTIME_INFO).json()["table"]["timerOffsetBehind"])


def log_of(broker: MqcoreBroker) -> str:
    return broker.store_dir.with_name(broker.store_dir.name + ".mqcore").joinpath("broker.out").read_text()


def test_timer_files_are_built_anew_when_some_are_lost(tmp_path: Path, chance: random.Random) -> None:
    build_anew(tmp_path, [DAMAGES[place] for place in sorted(chance.sample(range(len(DAMAGES)), 2))])


@pytest.mark.slow
def test_timer_files_are_built_anew_whatever_is_lost_of_them(tmp_path: Path) -> None:
    build_anew(tmp_path, DAMAGES)


def build_anew(tmp_path: Path, damages: list[tuple[Callable[[Path], None], str]]) -> None:
    with MqcoreBroker(tmp_path / "store", PROPERTIES) as broker:
        for number in range(EARLY):
            accepted(send(broker, "Early", b"%d" % number, TIMER_DELAY_MS=str(50 + number)))
        handles = [
            accepted(send(broker, "Late", b"%d" % number, TIMER_DELAY_MS=HOUR_MS)).ext_fields["recallHandle"]
            for number in range(LATE)
        ]
        for number in range(20):
            accepted(send(broker, "Soon", b"%d" % number, TIMER_DELAY_MS=str(8_000 + 100 * number)))
        for handle in handles[:RECALLED]:
            accepted(call(broker.broker_address, RECALL_MESSAGE, {"topic": "Late", "recallHandle": handle}))
        assert Counter(map(len, received(broker, "Early", EARLY).values())) == {1: EARLY}
        for damage, words in damages:
            # Nothing is in the checkpoint before the log is flushed that far: a stop waits for it.
            broker.stop()
            damage(broker.store_dir)
            said = len(log_of(broker))
            broker.start_again()
            wait_until(lambda: behind(broker) == 0, describe="all that waits is in the wheel")
            wait_until(lambda: late_count(broker) == LATE - RECALLED, describe=f"{damage.__name__}: none is lost")
            new = log_of(broker)[said:]
            assert ("ERROR" in new) == bool(words), new
            assert words in new
        assert Counter(map(len, received(broker, "Soon", 20).values())) == {1: 20}
        assert Counter(map(len, received(broker, "Early", EARLY).values())) == {1: EARLY}
        wait_until(lambda: waiting(broker) == LATE - RECALLED, describe="only those of the next hour wait")
        broker.stop()


def late_count(broker: MqcoreBroker) -> int:
    counts = call(broker.broker_address, GET_TIMER_METRICS).json()["timingCount"]
    found: int = counts.get("Late", {}).get("count", 0)
    return found


def test_a_wheel_of_another_length_is_refused_by_name(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", PROPERTIES) as broker:
        accepted(send(broker, "Late", b"late", TIMER_DELAY_MS=HOUR_MS))
        broker.stop()
        (broker.store_dir / "timerwheel").write_bytes(b"x")
        with pytest.raises(Exception, match="wanted 38707200"):
            broker.start_again()
