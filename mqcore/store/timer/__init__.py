"""Messages that wait for their time: wheel, timer log and checkpoint, as RocketMQ 5 lays them out."""
