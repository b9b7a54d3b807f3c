"""A sender's properties may end with a zero byte: the record does not, so that it is never taken for one cut off."""

from __future__ import annotations

from pathlib import Path

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.command import RemotingCommand
from tests.fault.talker import Talker
from tests.rigs import MqcoreBroker
from tests.rigs.wire import create_topic, max_offset

TOPIC = "Zero"
HEADER = {
    "producerGroup": "G", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    "properties": "A\x01b\x00",
}  # fmt: skip


def test_the_last_message_of_a_log_is_there_after_a_stop_and_after_a_death(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store") as broker:
        create_topic(broker.broker_address, TOPIC, queues=1)
        for count, leave in enumerate((broker.stop, broker.kill), start=1):
            with Talker(broker.broker_address) as talker:
                answer = talker.call(RemotingCommand(RequestCode.SEND_MESSAGE, ext_fields=HEADER, body=b"x"))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            leave()
            broker.start_again()
            assert max_offset(broker.broker_address, TOPIC, 0) == count
