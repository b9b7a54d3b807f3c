"""Where Spark finds the format ``rocketmq``: every session looks for modules called ``pyspark_...`` by itself.

It must be cheap to import and must never fail: an error here would take all Python data sources from the session. What
is missing is then told when the format is used: Spark does not know it.
"""

try:
    from mqcore.spark.source import RocketMQDataSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
