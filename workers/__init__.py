"""The worker processes, one module each: what RocketMQ does in thread pools, mqcore does in these."""
