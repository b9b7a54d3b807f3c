"""One pull whose messages lie in files that are far apart: each comes out of its own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from tests.fault.rig import DEADLINE_S, SMALL_FILES, start_broker
from tests.fault.talker import Talker, pull_request, pulled, send_request
from tests.rigs import wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC = "Scattered"
FILE_SIZE = 4096
BODY_SIZE = 3000
"""One message fills a file, so that message number n lies in file number n."""

FAR_FILES = (0, 512, 1024)


def test_a_pull_out_of_files_far_apart_brings_each_message(tmp_path: Path) -> None:
    properties = {**SMALL_FILES, "mappedFileSizeCommitLog": str(FILE_SIZE), "maxMessageSize": str(BODY_SIZE)}
    with start_broker(tmp_path, properties) as broker, Talker(broker.broker_address) as talker:
        wire.create_topic(broker.broker_address, TOPIC, queues=2)
        for number in range(max(FAR_FILES) + 1):
            body = number.to_bytes(4, "big") * (BODY_SIZE // 4)
            request = send_request(TOPIC, 0 if number in FAR_FILES else 1, body)
            assert talker.call(request).code == ResponseCode.SUCCESS
        wait_until(lambda: wire.max_offset(broker.broker_address, TOPIC, 0) == len(FAR_FILES), DEADLINE_S, "readable")
        messages = pulled(talker.call(pull_request(TOPIC, 0, 0)))
        assert [message.body[:4] for message in messages] == [number.to_bytes(4, "big") for number in FAR_FILES]
        assert [message.physical_offset for message in messages] == [number * FILE_SIZE for number in FAR_FILES]
        broker.stop()
