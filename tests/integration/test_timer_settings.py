"""What operators may set about timers: limits of slots, both halves stopped, and what retention leaves alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.client import Client, Message
from mqcore.client.errors import SendFailedError
from mqcore.codes import RequestCode
from mqcore.store.timer.wheel import TimerWheel, map_wheel
from tests.compat import apache_requests as requests
from tests.integration.test_timers import accepted, now_ms, received, runtime, send
from tests.rigs import wire
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import call
from tests.waiting import wait_until

LIMIT = 5
FILE_SIZE = 1 << 18
REFUSAL = (
    f"timer message is under flow control, max num limit is {2 * LIMIT} or the current value is greater than {LIMIT} "
    f"and less than {2 * LIMIT}, trigger random flow control"
)

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    with MqcoreBroker(tmp_path_factory.mktemp("timers") / "store") as made:
        accepted(send(made, "First", b"first", TIMER_DELAY_MS="2000"))
        yield made
        made.stop()


@pytest.fixture
def topic() -> str:
    return f"Set{next(_numbers)}"


def change(broker: MqcoreBroker, **settings: object) -> None:
    text = "\n".join(f"{name}={str(value).lower()}" for name, value in settings.items())
    accepted(call(broker.broker_address, RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode()))


def in_slot(broker: MqcoreBroker, due: int) -> int:
    """How many messages wait in the slot of what is due at *due*, by the file."""
    with map_wheel(broker.store_dir / "timerwheel") as memory:
        return TimerWheel(memory, 1000).slot((due - 1) // 1000 * 1000).message_count


def await_in_slot(broker: MqcoreBroker, due: int, count: int) -> None:
    wait_until(lambda: in_slot(broker, due) == count, describe=f"the wheel has {count} of them")


def test_a_full_slot_refuses_what_comes_and_others_do_not(broker: MqcoreBroker, topic: str) -> None:
    due = (now_ms() // 1000 + 7200) * 1000 + 500
    change(broker, timerCongestNumEachSlot=LIMIT)
    stored, refused = 0, 0
    while stored < 2 * LIMIT:
        answer = send(broker, topic, b"x", TIMER_DELIVER_MS=str(due))
        if answer.code == 0:
            stored += 1
            await_in_slot(broker, due, stored)
        else:
            # Between the limit and its double chance decides; below the limit nothing is refused.
            assert stored > LIMIT
            assert (answer.code, answer.remark) == (1, REFUSAL)
            refused += 1
    for _ in range(5):
        answer = send(broker, topic, b"x", TIMER_DELIVER_MS=str(due))
        assert (answer.code, answer.remark) == (1, REFUSAL)
    accepted(send(broker, topic, b"x", TIMER_DELIVER_MS=str(due + 1000)))
    with (
        Client(broker.name_server) as mq,
        mq.producer("P", retries=0) as producer,
        pytest.raises(SendFailedError, match="timer message is under flow control"),
    ):
        producer.send(Message(topic, b"x", deliver_at=due))
    change(broker, timerCongestNumEachSlot=2**31 - 1)
    accepted(send(broker, topic, b"x", TIMER_DELIVER_MS=str(due)))


def test_nothing_leaves_the_wheel_while_that_is_stopped(broker: MqcoreBroker, topic: str) -> None:
    change(broker, timerStopDequeue=True)
    begin = now_ms()
    accepted(send(broker, topic, b"held", TIMER_DELAY_MS="100"))
    wait_until(lambda: runtime(broker, "timerOffsetBehind") == "0", describe="it is in the wheel")
    wait_until(lambda: now_ms() > begin + 1500, describe="it is due")
    assert received(broker, topic, 0) == {}
    change(broker, timerStopDequeue=False)
    (message,) = received(broker, topic, 1)["held"]
    assert message.store_timestamp >= begin + 1500


def test_nothing_comes_into_the_wheel_while_that_is_stopped(broker: MqcoreBroker, topic: str) -> None:
    accepted(send(broker, topic, b"in", TIMER_DELAY_MS="1500"))
    wait_until(lambda: runtime(broker, "timerOffsetBehind") == "0", describe="it is in the wheel")
    change(broker, timerStopEnqueue=True)
    accepted(send(broker, topic, b"late", TIMER_DELAY_MS="100"))
    # What is in the wheel comes all the same.
    assert sorted(received(broker, topic, 1)) == ["in"]
    assert runtime(broker, "timerOffsetBehind") == "1"
    change(broker, timerStopEnqueue=False)
    assert sorted(received(broker, topic, 2)) == ["in", "late"]
    wait_until(lambda: runtime(broker, "timerOffsetBehind") == "0", describe="nothing is left behind")


def log_starts(store: Path) -> list[int]:
    return sorted(int(path.name) for path in (store / "commitlog").iterdir())


def fill(broker: MqcoreBroker) -> None:
    for _ in range(3 * FILE_SIZE // 60_000):
        accepted(send(broker, "Filler", b"f" * 60_000, UNIQ_KEY="f"))


def clean(broker: MqcoreBroker) -> int:
    """Have all deleted that nobody needs; where the oldest file begins."""
    accepted(call(broker.broker_address, RequestCode.DELETE_EXPIRED_COMMITLOG))
    return log_starts(broker.store_dir)[0]


def state_of(broker: MqcoreBroker, topic: str) -> str:
    """What says where a message is that did not come: the timers' figures, the queues' bounds, the files."""
    table = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    figures = {key: value for key, value in table.items() if "imer" in key or "commitLog" in key or "dispatch" in key}
    bounds = [requests.bounds(broker.broker_address, topic, queue_id) for queue_id in range(4)]
    files = sorted(path.name for path in (broker.store_dir / "commitlog").iterdir())
    return f"{figures} bounds={bounds} files={files}"


def test_no_file_of_the_log_goes_while_something_in_it_waits(tmp_path: Path) -> None:
    in_twelve_hours = f"{(time.localtime().tm_hour + 12) % 24:02d}"
    settings = {
        "mappedFileSizeCommitLog": str(FILE_SIZE), "fileReservedTime": "0", "deleteWhen": in_twelve_hours,
        "cleanResourceInterval": "100", "deleteCommitLogFilesInterval": "1",
    }  # fmt: skip

    with MqcoreBroker(tmp_path / "store", settings) as broker:
        fill(broker)
        due = now_ms() + 8_000
        answer = accepted(send(broker, "Waits", b"waits", TIMER_DELIVER_MS=str(due)))
        file = int(answer.ext_fields["msgId"][-16:], 16) // FILE_SIZE * FILE_SIZE
        fill(broker)
        wait_until(lambda: clean(broker) == file or now_ms() > due, describe="what lies before it is gone")
        while now_ms() < due:
            assert clean(broker) == file
            time.sleep(0.1)
        assert received(broker, "Waits", 1).keys() == {"waits"}, state_of(broker, "Waits")
        wait_until(lambda: clean(broker) > file, describe="nobody needs it any more")
        broker.stop()
