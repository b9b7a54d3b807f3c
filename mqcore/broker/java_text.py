"""Texts that Java makes of values and that peers or operators see: times and toString."""

from __future__ import annotations

import time

from mqcore.codes import PermName
from mqcore.protocol.bodies import TopicConfig


def human_time(timestamp: int) -> str:
    """Return a time in ms as ``2024-01-31 13:45:59,007``, local time."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(timestamp // 1000))},{timestamp % 1000:03d}"


def bool_text(value: bool) -> str:
    return "true" if value else "false"


def topic_config_text(config: TopicConfig) -> str:
    """Return a topic's record as a refusal shows it."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={PermName.to_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type.name}, topicSysFlag={config.topic_sys_flag}, "
        f"order={bool_text(config.order)}]"
    )


def human_size(size: int) -> str:
    """Return a number of bytes as ``1.5 KiB``; below 1,024 as ``512 B``. Source: UtilAll.humanReadableByteCount."""
    if size < 1024:
        return f"{size} B"
    value, units = size / 1024, "KMGTPE"
    step = 0
    while value >= 1024 and step < len(units) - 1:
        value /= 1024
        step += 1
    return f"{value:.1f} {units[step]}iB"
