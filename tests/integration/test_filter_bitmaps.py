"""Filter bitmaps in consume queue ext units: what they say is true, and no message is lost by them, whatever dies."""

from __future__ import annotations

import time
from pathlib import Path

from mqcore.bloom import BloomFilter
from mqcore.client import Client, PullConsumer, Sql
from tests.compat import apache_requests as requests
from tests.fault.rig import await_successor, kill_worker
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

TOPIC = "Priced"
# Units with bitmaps of 14 bytes, some hundred to a file.
EXT = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "4004", "workerRestartBackoffMillis": "1"}
DEADLINE_S = 60.0
GROUPS = {"Dear": "price > 5", "Cheap": "price < 3"}
BLOOM = BloomFilter.sized(20, 32)


def send(broker: MqcoreBroker, prices: range) -> None:
    for price in prices:
        properties = {"price": str(price % 10)}
        answer = requests.send(broker.broker_address, TOPIC, 0, b"%d" % price, time.time_ns() // 1_000_000, properties)
        assert answer.code == wire.SUCCESS


def bitmaps(broker: MqcoreBroker, count: int) -> list[set[int] | None]:
    """The bits of each unit of the queue, None for a unit without a bitmap."""
    wait_until(lambda: wire.max_offset(broker.broker_address, TOPIC, 0) == count, describe="everything is dispatched")
    found: list[set[int] | None] = []
    for unit in requests.queue_units(broker.broker_address, TOPIC, 0, count):
        text = "".join((unit.get("bitMap") or "").split())
        found.append({at for at, bit in enumerate(reversed(text)) if bit == "1"} if text else None)
    return found


def send_until_there_is_a_bitmap(broker: MqcoreBroker, count: int) -> int:
    """Send further messages until one has a bitmap; how many there are then."""

    def has_bitmap() -> bool:
        nonlocal count
        send(broker, range(count, count + 1))
        count += 1
        return bitmaps(broker, count)[-1] is not None

    wait_until(has_bitmap, DEADLINE_S, "bitmaps are made again")
    return count


def wanted_bits(price: int) -> set[int]:
    groups = [name for name, wants in (("Dear", price % 10 > 5), ("Cheap", price % 10 < 3)) if wants]
    return {bit for group in groups for bit in BLOOM.bits_of(f"{group}#{TOPIC}")}


def wants(group: str, price: int) -> bool:
    return price % 10 > 5 if group == "Dear" else price % 10 < 3


def take(consumer: PullConsumer, group: str, prices: range) -> None:
    """Receive what the group wants of *prices*, and nothing else."""
    wanted = [price for price in prices if wants(group, price)]
    found: list[int] = []
    while len(found) < len(wanted):
        messages = consumer.poll(DEADLINE_S)
        assert messages, f"{group} has {found}, wanted {wanted}"
        found += [int(message.body) for message in messages]
    assert found == wanted


def test_bitmaps_have_the_bits_of_who_wants_a_message_and_hide_none_through_crashes(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", EXT) as broker, Client(broker.name_server) as mq:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        wait_until(lambda: wire.has_route(broker.name_server, TOPIC), describe="a route")
        send(broker, range(20))
        assert bitmaps(broker, 20) == [None] * 20
        dear, cheap = (
            mq.pull_consumer(group, {TOPIC: Sql(expression)}, from_where="earliest")
            for group, expression in GROUPS.items()
        )
        with dear, cheap:
            # Both have pulled, so both are registered; the reput worker makes bitmaps by the time of the next message.
            take(dear, "Dear", range(20))
            take(cheap, "Cheap", range(20))
            send(broker, range(20, 220))
            take(dear, "Dear", range(20, 220))
            take(cheap, "Cheap", range(20, 220))
            made = bitmaps(broker, 220)[20:]
            assert made[-1] == wanted_bits(219)
            assert [bits for bits in made if bits is not None] == [
                wanted_bits(price) for price, bits in zip(range(20, 220), made, strict=True) if bits is not None
            ]
            # One that has just started may not have heard of the filters: it makes no bitmap then, and no wrong one.
            await_successor(broker, "reput", kill_worker(broker, "reput"))
            send(broker, range(220, 420))
            take(dear, "Dear", range(220, 420))
            take(cheap, "Cheap", range(220, 420))
            count = send_until_there_is_a_bitmap(broker, 420)
            take(dear, "Dear", range(420, count))
            take(cheap, "Cheap", range(420, count))
            assert all(
                bits is None or bits == wanted_bits(price)
                for price, bits in enumerate(bitmaps(broker, count)[220:], 220)
            )
            broker.kill()
            broker.start_again()
            send(broker, range(count, count + 100))
            take(dear, "Dear", range(count, count + 100))
            take(cheap, "Cheap", range(count, count + 100))
