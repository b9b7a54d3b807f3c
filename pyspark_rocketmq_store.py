"""Where Spark finds the format ``rocketmq-store``; see pyspark_rocketmq, which has the same rules."""

try:
    from mqcore.spark.store_source import RocketMQStoreDataSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
