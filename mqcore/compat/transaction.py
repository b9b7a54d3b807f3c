"""Java's TransactionMQProducer and its listener."""

from __future__ import annotations

from mqcore import client
from mqcore.client import Producer, ReceivedMessage, SendReceipt
from mqcore.client.model.transaction import TransactionReceipt, TransactionState
from mqcore.client.plain.client import TransactionProducer
from mqcore.compat.enums import LocalTransactionState
from mqcore.compat.message import Message, MessageExt, SendResult
from mqcore.compat.producer import DefaultMQProducer
from mqcore.errors import ClientError

STATES = {
    LocalTransactionState.COMMIT_MESSAGE: TransactionState.COMMIT,
    LocalTransactionState.ROLLBACK_MESSAGE: TransactionState.ROLLBACK,
    LocalTransactionState.UNKNOW: TransactionState.UNKNOWN,
}
NAMES = {state: name for name, state in STATES.items()}


class TransactionListener:
    """Runs local transactions, and tells later what became of them. Override both methods."""

    def execute_local_transaction(self, message: Message, argument: object) -> LocalTransactionState:
        """Run the local transaction of *message*, whose half the broker has stored."""
        raise NotImplementedError("override execute_local_transaction")

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        """Say what became of the local transaction of *message*; the broker asks when it has not been told."""
        raise NotImplementedError("override check_local_transaction")


class TransactionSendResult(SendResult):
    """What a broker said about a half message, and the outcome that it was told."""

    def __init__(self, receipt: TransactionReceipt) -> None:
        super().__init__([receipt])
        self._state = NAMES[receipt.state]

    def get_local_transaction_state(self) -> LocalTransactionState:
        return self._state


class TransactionMQProducer(DefaultMQProducer):
    """A producer of messages that are delivered only if a local transaction succeeds."""

    def __init__(self, producer_group: str = "") -> None:
        super().__init__(producer_group)
        self._listener: TransactionListener | None = None

    def get_transaction_listener(self) -> TransactionListener | None:
        return self._listener

    def set_transaction_listener(self, listener: TransactionListener) -> None:
        self._listener = listener

    def set_executor_service(self, executor: object) -> None:
        """Accept Java's threads for checks: here ``set_check_thread_pool_max_size`` says how many there are."""

    def set_check_thread_pool_max_size(self, size: int) -> None:
        self._settings["check_concurrency"] = size

    def set_check_request_hold_max(self, count: int) -> None:
        self._settings["check_queue_max"] = count

    def send_message_in_transaction(self, message: Message, argument: object = None) -> TransactionSendResult:
        """Send *message* as a half, run the listener's local transaction, and tell the broker the outcome."""
        producer, listener = self._running(), self._listener
        if not isinstance(producer, TransactionProducer) or listener is None:
            raise ClientError("TransactionListener is null")

        def execute(_: client.Message, receipt: SendReceipt) -> TransactionState:
            message.set_transaction_id(receipt.transaction_id or receipt.msg_id)
            return STATES[listener.execute_local_transaction(message, argument)]

        return TransactionSendResult(producer.send_in_transaction(message.to_core(), execute))

    def _make_producer(self, opened: client.Client) -> Producer:
        if self._listener is None:
            raise ClientError("TransactionListener is null")
        return opened.transaction_producer(self._group, self._check, **self._settings)

    def _check(self, message: ReceivedMessage) -> TransactionState:
        assert self._listener is not None  # start refuses without one
        return STATES[self._listener.check_local_transaction(MessageExt(message))]
