"""Keys of RocketMQ 5.x that stand in many configuration files.

None has an effect, and a value that asks for safety which mqcore does not give stops the start.
The list is not complete: a 5.x key that is missing here is an unknown key, and the error names it.
"""

from __future__ import annotations

from mqcore.config.table import ANY_TEXT, INT_MAX, Group, Program, fixed, in_group, later, refusing

ACTING = "acting masters of 5.x"
COLD = "cold data control of 5.x"
COMPACTION = "compacted topics of 5.x"
CONTROLLER = "automatic fail-over of 5.x"
GUARD = "mqcore has no access control, and would let everyone in where the file asks for a guard"
METRICS = "metrics exporter of 5.x"
OPS = "each transaction is ended by an op message of its own, as in 4.9; those of 5.x are read"
POP = "pop consumption of 5.x"
PROXY = "belongs to the proxy of 5.x"
REPLICAS = "replicas are not built"
SWAP = "mapping is left to the kernel"
TIERED = "tiered storage of 5.x"
TIMER = "one process reads and delivers"
TUNING = "tuning of 5.x"

BROKER = (
    later("recoverConcurrently", False, TUNING),
    later("litePullMessageEnable", True, TUNING),
    later("litePullMessageThreadPoolNums", 0, TUNING),
    later("ackMessageThreadPoolNums", 3, POP),
    later("loadBalanceProcessorThreadPoolNums", 32, POP),
    later("fetchNameSrvAddrByDnsLookup", False, "name servers are given by namesrvAddr"),
    later("accountStatsEnable", True, "billing counters"),
    later("sendHeartbeatTimeoutMillis", 1_000, ACTING),
    later("brokerHeartbeatInterval", 1_000, ACTING),
    later("brokerNotActiveTimeoutMillis", 10_000, ACTING),
    later("enableSlaveActingMaster", False, ACTING),
    later("enableRemoteEscape", False, ACTING),
    later("skipPreOnline", False, ACTING),
    later("compatibleWithOldNameSrv", True, "mqcore registers as 4.9 does"),
    later("syncBrokerMemberGroupPeriod", 1_000, ACTING),
    later("lockInStrictMode", False, ACTING),
    refusing(
        later("enableControllerMode", False, CONTROLLER),
        "true",
        "mqcore has no controller, and would not fail over where the file asks for it",
    ),
    later("controllerAddr", "", CONTROLLER),
    later("brokerElectionPriority", INT_MAX, CONTROLLER),
    later("enableNetWorkFlowControl", False, TUNING),
    later("rejectPullConsumerEnable", False, TUNING),
    later("enableBroadcastOffsetStore", True, PROXY),
    later("popPollingSize", 1_024, POP),
    later("popPollingMapSize", 100_000, POP),
    later("maxPopPollingSize", 100_000, POP),
    later("reviveQueueNum", 8, POP),
    later("reviveInterval", 1_000, POP),
    later("enablePopLog", False, POP),
    later("enablePopBufferMerge", False, POP),
    later("popCkStayBufferTime", 10_000, POP),
    later("popCkStayBufferTimeOut", 3_000, POP),
    later("popConsumerKVServiceEnable", False, POP),
    later("serverLoadBalancerEnable", True, POP),
    later("defaultMessageRequestMode", "PULL", POP),
    later("defaultPopShareQueueNum", -1, POP),
    later("transactionOpMsgMaxSize", 4_096, OPS),
    later("transactionOpBatchInterval", 3_000, OPS),
    later("asyncSendEnable", True, TUNING),
    later("useServerSideResetOffset", False, TUNING),
    later("consumerOffsetUpdateVersionStep", 500, TUNING),
    later("delayOffsetUpdateVersionStep", 200, TUNING),
    later("validateSystemTopicWhenUpdateTopic", True, "always on"),
    later("useStaticSubscription", False, TUNING),
    later("enableSingleTopicRegister", False, TUNING),
    later("enableMixedMessageType", False, TUNING),
    later("enableSplitRegistration", False, TUNING),
    later("splitRegistrationSize", 800, TUNING),
    later("channelExpiredTimeout", 120_000, TUNING),
    later("subscriptionExpiredTimeout", 600_000, TUNING),
    later("estimateAccumulation", True, TUNING),
    later("coldCtrStrategyEnable", False, COLD),
    later("usePIDColdCtrStrategy", True, COLD),
    later("metricsExporterType", "DISABLE", METRICS),
    later("metricsGrpcExporterTarget", "", METRICS),
    fixed(later("metricsPromExporterPort", 5_557, METRICS)),
    later("metricsPromExporterHost", "", METRICS),
    later("metricsLabel", "", METRICS),
    refusing(later("authenticationEnabled", False, "access control is not built"), "true", GUARD),
    refusing(later("authorizationEnabled", False, "access control is not built"), "true", GUARD),
    refusing(later("migrateAuthFromV1Enabled", False, "access control is not built"), "true", GUARD),
    later("authenticationProvider", "", "names Java classes"),
    later("authenticationMetadataProvider", "", "names Java classes"),
    later("authorizationProvider", "", "names Java classes"),
    later("authorizationMetadataProvider", "", "names Java classes"),
    later("initAuthenticationUser", "", "access control is not built"),
    later("brokerConfigPaths", "", "broker container of 5.x"),
    later("configManagerVersion", "V1", "tables are JSON files, as in 4.9"),
)

STORE = (
    later("storePathEpochFile", "", CONTROLLER),
    later("storePathBrokerIdentity", "", CONTROLLER),
    later("enableCompaction", True, COMPACTION),
    later("compactionMappedFileSize", 100 * 2**20, COMPACTION),
    later("compactionCqMappedFileSize", 10 * 2**20, COMPACTION),
    later("compactionThreadNum", 6, COMPACTION),
    later("timerEnableCheckMetrics", True, "counted anew at each start"),
    later("timerCheckMetricsWhen", "05", "counted anew at each start"),
    later("timerMetricSmallThreshold", 1_000_000, "counted anew at each start"),
    later("timerInterceptDelayLevel", False, "delay levels stay in their topic, for brokers that take the store over"),
    later("timerSkipUnknownError", False, "what cannot be read is passed over and logged, the rest is delivered"),
    later("timerEnableRetryUntilSuccess", False, "what is due is tried until the store takes it"),
    later("timerEnableDisruptor", False, TIMER),
    later("timerProgressLogIntervalMs", 10_000, "the figures are in the runtime information"),
    later("timerGetMessageThreadNum", 3, TIMER),
    later("timerPutMessageThreadNum", 3, TIMER),
    later("timerWarmEnable", False, TIMER),
    later("disappearTimeAfterStart", -1, TIMER),
    refusing(
        later("storeType", "default", "the store has the file format of 4.9"),
        "defaultRocksDB",
        "mqcore cannot read queues kept in RocksDB",
    ),
    later("mapperFileSizeBatchConsumeQueue", 13_800_000, "batch queues of 5.x"),
    later("maxRecoveryCommitlogFiles", 30, TUNING),
    later("diskSpaceWarningLevelRatio", 90, TUNING),
    later("diskSpaceCleanForciblyRatio", 85, TUNING),
    later("deleteFileBatchMax", 10, TUNING),
    later("maxFilterMessageSize", 16_000, TUNING),
    later("putMessageTimeout", 8_000, TUNING),
    later("haMaxGapNotInSync", 256 * 2**20, REPLICAS),
    later("totalReplicas", 1, REPLICAS),
    later("inSyncReplicas", 1, REPLICAS),
    later("allAckInSyncStateSet", False, REPLICAS),
    later("enableAutoInSyncReplicas", False, REPLICAS),
    later("syncMasterFlushOffsetWhenStartup", False, REPLICAS),
    later("syncFromLastFile", False, REPLICAS),
    later("asyncLearner", False, REPLICAS),
    later("writeWithoutMmap", False, TUNING),
    later("maxBatchDeleteFilesNum", 50, TUNING),
    later("dispatchCqThreads", 10, TUNING),
    later("enableAsyncReput", True, TUNING),
    later("recheckReputOffsetFromCq", False, TUNING),
    later("maxTopicLength", 127, "topic names have at most 127 bytes"),
    later("autoMessageVersionOnTopicLen", True, "records have the format of 4.9"),
    later("enabledAppendPropCRC", False, "records have the format of 4.9"),
    later("forceVerifyPropCRC", False, "records have the format of 4.9"),
    later("travelCqFileNumWhenGetMessage", 1, TUNING),
    later("mappedFileSwapEnable", True, SWAP),
    later("commitLogForceSwapMapInterval", 43_200_000, SWAP),
    later("commitLogSwapMapInterval", 3_600_000, SWAP),
    later("searchBcqByCacheEnable", True, "batch queues of 5.x"),
    later("dispatchFromSenderThread", False, TUNING),
    later("wakeCommitWhenPutMessage", True, TUNING),
    later("wakeFlushWhenPutMessage", False, TUNING),
    later("enableCleanExpiredOffset", False, TUNING),
    later("maxAsyncPutMessageRequests", 5_000, TUNING),
    later("pullBatchMaxMessageCount", 160, TUNING),
    later("coldDataFlowControlEnable", False, COLD),
    later("coldDataScanEnable", False, COLD),
    later("dataReadAheadEnable", True, TUNING),
    later("enableBuildConsumeQueueConcurrently", False, TUNING),
    later("batchDispatchRequestThreadPoolNums", 16, TUNING),
    later("tieredStorageLevel", "", TIERED),
    later("tieredBackendServiceProvider", "", TIERED),
    later("tieredMetadataServiceProvider", "", TIERED),
    later("tieredStoreFilePath", "", TIERED),
)

NAMESRV = (
    later("returnOrderTopicConfigToBroker", True, TUNING),
    later("clientRequestThreadPoolNums", 8, TUNING),
    later("defaultThreadPoolNums", 16, TUNING),
    later("clientRequestThreadPoolQueueCapacity", 50_000, TUNING),
    later("defaultThreadPoolQueueCapacity", 10_000, TUNING),
    later("scanNotActiveBrokerInterval", 5_000, TUNING),
    later("unRegisterBrokerQueueCapacity", 3_000, TUNING),
    later("supportActingMaster", False, ACTING),
    later("enableAllTopicList", True, TUNING),
    later("enableTopicList", True, TUNING),
    later("notifyMinBrokerIdChanged", False, ACTING),
    refusing(
        later("enableControllerInNamesrv", False, CONTROLLER),
        "true",
        "mqcore has no controller, and brokers would wait for one",
    ),
    later("needWaitForService", False, TUNING),
    later("waitSecondsForService", 45, TUNING),
    later("deleteTopicWithBrokerRegistration", False, TUNING),
    refusing(later("controllerDLegerPeers", "", CONTROLLER), ANY_TEXT, "mqcore has no controller"),
)

ROWS = (
    *in_group(Group.BROKER, BROKER, Program.BROKER),
    *in_group(Group.STORE, STORE, Program.BROKER),
    *in_group(Group.NAMESRV, NAMESRV, Program.BROKER, Program.NAMESRV),
)
