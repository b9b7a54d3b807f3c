"""What every run of the tests stands under, benchmarks' tests included; see tests/suite."""

pytest_plugins = (
    "tests.suite.seeds",
    "tests.suite.scheduling",
    "tests.suite.collecting",
    "tests.suite.timeouts",
    "tests.suite.broker_logs",
    "tests.suite.checks",
    "tests.suite.closing",
    "tests.suite.costs",
    "tests.suite.resuming",
    "tests.suite.second_look",
)
