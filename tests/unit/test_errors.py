"""The error tree: every class pickles with its place, says what to do next, and is found by the broker's code."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqcore.admin.running
from mqcore import errors
from mqcore.broker.security.validator import AclError, Refusal
from mqcore.client import errors as client_errors
from mqcore.client.model.receipt import SendReceipt, SendStatus
from mqcore.codes import ClientErrorCode, ResponseCode
from mqcore.errors import BaseMQError, BrokerError, MisuseError, MQError
from mqcore.protocol.message import MessageQueue
from mqcore.spark import errors as spark_errors
from mqcore.spark.reading import NotThereYetError
from tests.rows import walked

ARGUMENTS: dict[type[BaseMQError], tuple[object, ...]] = {
    errors.CorruptRecordError: ("bad magic code", 4096),
    errors.CorruptFileError: ("wrong size", "/store/0000"),
    errors.OffsetOutOfRangeError: ("queue offset", 9, 1, 5),
    errors.HeaderError: ("queueId", "'x'", "a number", "SEND_MESSAGE"),
    client_errors.NoRouteError: ("Orders",),
    client_errors.BrokerNotFoundError: ("broker-a",),
    client_errors.InvalidBodyError: ("Orders", "ID", "JSON", "ValueError: no"),
    client_errors.SendForbiddenError: ("Orders", "not on Sundays"),
    client_errors.BatchPartlySentError: ("Orders", (), 10, "no answer"),
    client_errors.RequestTimeoutError: ("Orders", 3000),
    client_errors.SendFailedError: ("Orders", ("broker-a", "broker-b"), 3001, 10002, "no answer"),
    client_errors.SendForbiddenError: ("Orders", "PermissionError: not today"),
    client_errors.BatchPartlySentError: (
        "Orders",
        (SendReceipt(SendStatus.SEND_OK, "ID", "OFFSET", MessageQueue("Orders", "broker-a", 0), 7),),
        3,
        "no answer",
    ),
    client_errors.RequestTimeoutError: ("Orders", 3000),
    spark_errors.NoQueueError: ("Orders", "broker-b", 3),
    spark_errors.SinkError: (3, 17, "Orders", 14, "disk full"),
    NotThereYetError: ("Orders/broker-a/0", 40),
    AclError: (Refusal.SIGNATURE, "Check signature failed", "somebody"),
}
"""What classes with a constructor of their own are made of."""


def classes_below(root: type[BaseMQError]) -> Iterator[type[BaseMQError]]:
    yield root
    for below in root.__subclasses__():
        yield from classes_below(below)


def every_class() -> list[type[BaseMQError]]:
    assert mqcore.admin.running.PartialError  # the tree is as large as what has been imported
    found = [found for found in dict.fromkeys(classes_below(BaseMQError)) if found.__module__.startswith("mqcore.")]
    return sorted(found, key=lambda cls: f"{cls.__module__}.{cls.__name__}")


def make(cls: type[BaseMQError]) -> BaseMQError:
    if issubclass(cls, BrokerError):
        return cls(cls.codes[0] if cls.codes else 1, "no", "10.0.0.1:10911")
    return cls(*ARGUMENTS.get(cls, ("what went wrong",)))


def facts(error: BaseMQError) -> tuple[object, ...]:
    return type(error), error.args, str(error), error.code, error.broker, error.topic, error.retryable, error.hint


@walked("cls", every_class())
def test_every_error_pickles_and_copies_with_its_place(cls: type[BaseMQError]) -> None:
    error = make(cls).at(broker="10.0.0.2:10911", topic="Payments")
    for back in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert facts(back) == facts(error)


@walked("cls", every_class())
def test_every_error_has_a_code_a_place_and_says_whether_to_retry(cls: type[BaseMQError]) -> None:
    error = make(cls)
    assert isinstance(error.code, int)
    assert isinstance(error.retryable, bool)
    assert all(isinstance(text, str) for text in (error.hint, error.broker, error.topic, str(error)))
    if isinstance(error, BrokerError | errors.RemotingConnectError | errors.RemotingTimeoutError):
        assert error.hint or type(error) is BrokerError


def test_an_error_comes_out_of_another_process_as_it_went_in() -> None:
    sent = [make(cls).at(topic="Orders") for cls in every_class()]
    program = "import pickle, sys; pickle.dump(pickle.load(sys.stdin.buffer), sys.stdout.buffer)"
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(sent), stdout=subprocess.PIPE, check=True)
    assert [facts(error) for error in pickle.loads(done.stdout)] == [facts(error) for error in sent]


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (ResponseCode.SYSTEM_BUSY, errors.BrokerBusyError),
        (ResponseCode.FLOW_CONTROL, errors.BrokerBusyError),
        (ResponseCode.SERVICE_NOT_AVAILABLE, errors.BrokerUnavailableError),
        (ResponseCode.TOPIC_NOT_EXIST, errors.TopicNotFoundError),
        (ResponseCode.NO_PERMISSION, errors.PermissionDeniedError),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, errors.GroupNotFoundError),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, errors.SubscriptionError),
        (ResponseCode.SUBSCRIPTION_NOT_LATEST, errors.SubscriptionNotReadyError),
        (ResponseCode.MESSAGE_ILLEGAL, errors.MessageRefusedError),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, errors.NotSupportedError),
        (ResponseCode.SYSTEM_ERROR, BrokerError),
        (4711, BrokerError),
    ],
)
def test_a_refusal_is_of_the_class_of_its_code(code: int, cls: type[BrokerError]) -> None:
    error = BrokerError(code, "no", "10.0.0.1:10911")
    assert type(error) is cls
    assert (error.code, error.remark, error.address, error.broker) == (code, "no", "10.0.0.1:10911", "10.0.0.1:10911")
    assert str(error) == f"CODE: {code} DESC: no BROKER: 10.0.0.1:10911"
    assert error.code_name == (str(code) if code == 4711 else ResponseCode(code).name)


def test_no_code_has_two_classes() -> None:
    codes = [code for cls in BrokerError.__subclasses__() for code in cls.codes]
    assert len(codes) == len(set(codes))


def test_the_first_place_that_is_noted_stays() -> None:
    error = errors.RemotingSendError("closed").at(broker="a:1").at(broker="b:2", topic="Orders")
    assert (error.broker, error.topic) == ("a:1", "Orders")


def test_errors_of_the_client_have_the_codes_of_rocketmqs_clients() -> None:
    assert client_errors.NoRouteError("Orders").code == ClientErrorCode.NOT_FOUND_TOPIC_EXCEPTION
    assert client_errors.NoNameServerError("none").code == ClientErrorCode.NO_NAME_SERVER_EXCEPTION
    assert client_errors.RemotingConnectError("no").code == ClientErrorCode.CONNECT_BROKER_EXCEPTION
    assert client_errors.RemotingTimeoutError("late").code == ClientErrorCode.ACCESS_BROKER_TIMEOUT
    failed = client_errors.SendFailedError("Orders", ("broker-a", "broker-b"), 3001, 10002, "no answer")
    assert (failed.code, failed.topic, failed.broker) == (10002, "Orders", "broker-b")


def test_what_a_program_catches_is_all_in_one_module() -> None:
    public = {name for name in client_errors.__all__ if name not in {"Reject", "Retry"}}
    below = {cls for root in (BrokerError, errors.RemotingError) for cls in classes_below(root)}
    # Reading for Spark asks again by itself; nobody outside ever catches this one.
    assert {cls.__name__ for cls in below - {NotThereYetError}} <= public
    assert all(issubclass(getattr(client_errors, name), BaseMQError) for name in public)


def test_who_tries_again_after_a_failure_does_not_try_a_mistake_again() -> None:
    mistakes = list(classes_below(MisuseError))
    assert {client_errors.ArgumentError, client_errors.ClientClosedError} <= set(mistakes)
    assert not any(issubclass(cls, MQError) or cls.retryable for cls in mistakes)


def test_a_route_that_spark_misses_is_a_route_that_the_client_misses() -> None:
    error = spark_errors.TopicRouteError("Orders")
    assert isinstance(error, client_errors.NoRouteError)
    assert (error.code, error.topic) == (ClientErrorCode.NOT_FOUND_TOPIC_EXCEPTION, "Orders")
    assert "option nameServer" in str(error)


def test_the_page_about_errors_names_every_one() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "client" / "errors.md").read_text(encoding="utf-8")
    assert [name for name in client_errors.__all__ if f"`{name}`" not in page] == []
