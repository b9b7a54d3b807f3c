"""The names of RocketMQ's Java client, so that examples in books and documentation port line by line.

Classes are called as in Java, methods as in Java in snake_case: ``producer.set_namesrv_addr("localhost:9876")``. Times
are milliseconds, as there. New programs are shorter with ``mqcore.client`` or ``mqcore.aio``, on which this stands.
``mqcore.compat.rocketmq`` has the names of rocketmq-client-python.
"""

from mqcore.client import PullStatus
from mqcore.client.errors import BrokerError as MQBrokerException
from mqcore.client.errors import ClientError as MQClientException
from mqcore.client.errors import RemotingConnectError as RemotingConnectException
from mqcore.client.errors import RemotingError as RemotingException
from mqcore.client.errors import RemotingSendError as RemotingSendRequestException
from mqcore.client.errors import RemotingTimeoutError as RemotingTimeoutException
from mqcore.client.errors import RemotingTooMuchRequestError as RemotingTooMuchRequestException
from mqcore.compat.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
)
from mqcore.compat.config import AclClientRPCHook, ClientConfig, SessionCredentials
from mqcore.compat.consumer import DefaultMQPushConsumer, MessageSelector
from mqcore.compat.enums import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    LocalTransactionState,
    MessageModel,
    SendStatus,
)
from mqcore.compat.listeners import (
    ConsumeConcurrentlyContext,
    ConsumeOrderlyContext,
    MessageListenerConcurrently,
    MessageListenerOrderly,
)
from mqcore.compat.lite_pull import DefaultLitePullConsumer, TopicMessageQueueChangeListener
from mqcore.compat.message import Message, MessageExt, MessageQueue, SendResult
from mqcore.compat.producer import DefaultMQProducer, SendCallback
from mqcore.compat.pull import DefaultMQPullConsumer, MessageQueueListener, PullCallback, PullResult
from mqcore.compat.pull_schedule import MQPullConsumerScheduleService, PullTaskCallback, PullTaskContext
from mqcore.compat.request_reply import MessageUtil, RequestCallback
from mqcore.compat.selectors import (
    MessageQueueSelector,
    SelectMessageQueueByHash,
    SelectMessageQueueByMachineRoom,
    SelectMessageQueueByRandom,
)
from mqcore.compat.transaction import TransactionListener, TransactionMQProducer, TransactionSendResult

__all__ = [
    "AclClientRPCHook",
    "AllocateMachineRoomNearby",
    "AllocateMessageQueueAveragely",
    "AllocateMessageQueueAveragelyByCircle",
    "AllocateMessageQueueByConfig",
    "AllocateMessageQueueByMachineRoom",
    "AllocateMessageQueueConsistentHash",
    "ClientConfig",
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "DefaultLitePullConsumer",
    "DefaultMQProducer",
    "DefaultMQPullConsumer",
    "DefaultMQPushConsumer",
    "LocalTransactionState",
    "MQBrokerException",
    "MQClientException",
    "MQPullConsumerScheduleService",
    "Message",
    "MessageExt",
    "MessageListenerConcurrently",
    "MessageListenerOrderly",
    "MessageModel",
    "MessageQueue",
    "MessageQueueListener",
    "MessageQueueSelector",
    "MessageSelector",
    "MessageUtil",
    "PullCallback",
    "PullResult",
    "PullStatus",
    "PullTaskCallback",
    "PullTaskContext",
    "RemotingConnectException",
    "RemotingException",
    "RemotingSendRequestException",
    "RemotingTimeoutException",
    "RemotingTooMuchRequestException",
    "RequestCallback",
    "SelectMessageQueueByHash",
    "SelectMessageQueueByMachineRoom",
    "SelectMessageQueueByRandom",
    "SendCallback",
    "SendResult",
    "SendStatus",
    "SessionCredentials",
    "TopicMessageQueueChangeListener",
    "TransactionListener",
    "TransactionMQProducer",
    "TransactionSendResult",
]
