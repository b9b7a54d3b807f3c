"""Backups of brokers that work: under load, while files are deleted and topics dropped, and what is restored serves."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.store.backup.directory import BackupDirectory
from tests.compat import apache_requests as requests
from tests.integration.backup_rig import (
    DEADLINE_S,
    QUEUES,
    TOPIC,
    assert_holds,
    back_up,
    grow,
    mqcore,
    served,
    stored,
    talking,
)
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

FILE_SIZE = 1 << 20
DELETE_TOPIC_IN_BROKER = 215


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreBroker]:
    with MqcoreBroker(tmp_path / "store", {"mappedFileSizeCommitLog": str(FILE_SIZE)}) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=QUEUES)
        yield broker


def test_what_was_acknowledged_before_a_backup_began_is_served_by_the_restored_store(broker, tmp_path):
    target = tmp_path / "backup"
    with talking(broker) as talker:
        for _ in range(3):
            grow(talker, 400)
            acknowledged = talker.so_far()
            wire.commit_offset(
                broker.broker_address, "G", TOPIC, 0, max(offset for queue, offset in acknowledged if queue == 0)
            )
            result = back_up(target, broker.store_dir)
            assert result["damaged"] == []
            assert_holds(stored(target), acknowledged)
    assert result["number"] == 3
    code, out, err = mqcore("backup", target, "--verify", "--output", "json")
    assert (code, json.loads(out)["problems"]) == (0, []), err
    code, out, err = mqcore("restore", target, tmp_path / "new", "--output", "json")
    assert code == 0, err
    restored = json.loads(out)
    assert restored["endOffset"] == result["endOffset"]
    with MqcoreBroker(tmp_path / "new", {"mappedFileSizeCommitLog": str(FILE_SIZE)}) as new:
        assert served(new, TOPIC, QUEUES) == stored(target)
        assert_holds(served(new, TOPIC, QUEUES), acknowledged)
        assert (wire.consumer_offset(new.broker_address, "G", TOPIC, 0) or 0) <= requests.bounds(
            new.broker_address, TOPIC, 0
        )[1]
        _, high = requests.bounds(new.broker_address, TOPIC, 1)
        sent = requests.send(new.broker_address, TOPIC, 1, b"on it goes", int(time.time() * 1000), {})
        assert (sent.code, sent.ext_fields["queueOffset"]) == (wire.SUCCESS, str(high))
        # The restored store has gone its own way: its backups are its own.
        code, _, err = mqcore("backup", tmp_path / "other", "--store", new.store_dir)
        assert code == 0, err


def test_files_are_deleted_and_a_topic_is_made_anew_between_backups(broker, tmp_path):
    target = tmp_path / "backup"
    with talking(broker) as talker:
        grow(talker, 1500)
        back_up(target, broker.store_dir)
        first = talker.so_far()
    wire.call(broker.broker_address, DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    before = back_up(target, broker.store_dir)["endOffset"]
    wire.create_topic(broker.broker_address, TOPIC, queues=QUEUES)
    with talking(broker) as talker:
        grow(talker, 300)
        second = talker.so_far()
        back_up(target, broker.store_dir)
        # As if they were old: the broker deletes them, and the backup keeps them.
        oldest = sorted((broker.store_dir / "commitlog").iterdir())[:1]
        for path in oldest:
            path.unlink()
        grow(talker, 300)
        back_up(target, broker.store_dir)
        third = talker.so_far()
    assert BackupDirectory(target).load().start == 0
    mqcore("restore", target, tmp_path / "new")
    with MqcoreBroker(tmp_path / "new", {"mappedFileSizeCommitLog": str(FILE_SIZE)}) as new:
        found = served(new, TOPIC, QUEUES)
        assert_holds(found, second)
        assert set(found) <= set(third)
    # And before it was deleted.
    code, _, err = mqcore("restore", target, tmp_path / "old", "--until-offset", before - 1)
    assert code == 0, err
    with MqcoreBroker(tmp_path / "old", {"mappedFileSizeCommitLog": str(FILE_SIZE)}) as old:
        wire.create_topic(old.broker_address, TOPIC, queues=QUEUES)
        found = served(old, TOPIC, QUEUES)
        assert len(found) >= len(first) - 1
        assert_holds(first, {key: body for key, body in found.items() if key in first})


def test_the_slave_of_a_pair_can_be_backed_up(broker, tmp_path):
    ha_port = int(broker.broker_address.rpartition(":")[2]) + 1
    properties = {
        "mappedFileSizeCommitLog": str(FILE_SIZE),
        "brokerRole": "SLAVE",
        "brokerId": "1",
        "namesrvAddr": broker.name_server,
        "haMasterAddress": f"127.0.0.1:{ha_port}",
    }
    with talking(broker) as talker, MqcoreBroker(tmp_path / "slave", properties) as slave:
        grow(talker, 300)
        acknowledged = talker.so_far()
        config = tmp_path / "slave" / "config" / "topics.json"
        wait_until(
            lambda: (
                len(stored(slave.store_dir)) >= len(acknowledged) and config.exists() and TOPIC in config.read_text()
            ),
            DEADLINE_S,
            "the slave has the messages and the topic",
        )
        back_up(tmp_path / "backup", slave.store_dir)
    mqcore("restore", tmp_path / "backup", tmp_path / "new")
    with MqcoreBroker(tmp_path / "new", {"mappedFileSizeCommitLog": str(FILE_SIZE)}) as new:
        assert_holds(served(new, TOPIC, QUEUES), acknowledged)


def test_the_command_says_what_it_did_and_ends_with_codes(broker, tmp_path):
    with talking(broker) as talker:
        grow(talker, 20)
    target = tmp_path / "backup"
    done = subprocess.run(
        [sys.executable, "-m", "mqcore.admin.main", "backup", target, "--store", broker.store_dir, "--max-rate", "1G"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "copiedMessages" in done.stdout
    code, out, _ = mqcore("backup", target, "--list", "--output", "json")
    assert code == 0
    assert [run["number"] for run in json.loads(out)] == [1]
    assert mqcore("backup", target)[0] == 2
    assert mqcore("backup", target, "--store", tmp_path)[0] == 1
    assert mqcore("backup", target, "--store", broker.store_dir, "--max-rate", "fast")[0] == 2
    assert mqcore("backup", target, "--store", broker.store_dir, "--keep", "soon")[0] == 2
    assert mqcore("restore", target, broker.store_dir)[0] == 1
    log_file = BackupDirectory(target).log_file(0)
    data = bytearray(log_file.read_bytes())
    data[100] ^= 1
    log_file.write_bytes(data)
    code, _, err = mqcore("backup", target, "--verify")
    assert code == 4
    assert str(log_file) in err
    code, _, err = mqcore("restore", target, tmp_path / "new")
    assert code == 1
    assert str(log_file) in err


def test_a_timer_is_delivered_once_by_the_broker_or_by_the_one_on_the_restored_store(broker, tmp_path):
    def send_timed(body: bytes, delay_ms: int) -> None:
        answer = requests.send(
            broker.broker_address, TOPIC, 0, body, int(time.time() * 1000), {"TIMER_DELAY_MS": str(delay_ms)}
        )
        assert answer.code == wire.SUCCESS, answer

    send_timed(b"soon", 500)
    send_timed(b"later", 12_000)
    wait_until(lambda: b"soon" in stored(broker.store_dir).values(), DEADLINE_S, "the first is delivered")
    back_up(tmp_path / "backup", broker.store_dir)
    send_timed(b"not in the backup", 500)
    assert mqcore("restore", tmp_path / "backup", tmp_path / "new")[0] == 0
    with MqcoreBroker(tmp_path / "new", {"mappedFileSizeCommitLog": str(FILE_SIZE)}) as new:
        # The second is due when its twelve seconds are over; what is sent now is due before, and comes behind what was.
        answer = requests.send(new.broker_address, TOPIC, 0, b"new", int(time.time() * 1000), {"TIMER_DELAY_MS": "100"})
        assert answer.code == wire.SUCCESS, answer
        wait_until(
            lambda: {b"new", b"later"} <= set(served(new, TOPIC, QUEUES).values()), DEADLINE_S, "both are delivered"
        )
        found = sorted(served(new, TOPIC, QUEUES).values())
    assert found == [b"later", b"new", b"soon"]


def test_a_disk_that_is_full_ends_a_run_and_leaves_what_was_there(broker, tmp_path):
    """A limit on the size of files stands for the disk."""
    target = tmp_path / "backup"
    with talking(broker) as talker:
        grow(talker, 50)
        first = back_up(target, broker.store_dir)
        acknowledged = talker.so_far()
        grow(talker, 100)
    limit = BackupDirectory(target).log_file(0).stat().st_size + 10_000
    command = ["prlimit", f"--fsize={limit}", sys.executable, "-m", "mqcore.admin.main"]
    done = subprocess.run(
        [*command, "backup", target, "--store", broker.store_dir], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert [run.end for run in BackupDirectory(target).load().runs] == [first["endOffset"]]
    assert_holds(acknowledged, {key: body for key, body in stored(target).items() if key in acknowledged})
    assert mqcore("backup", target, "--verify")[0] == 0
    assert back_up(target, broker.store_dir)["number"] == 2
