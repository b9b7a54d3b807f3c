"""The rows of RocketMQ's MessageStoreConfig: files, flushing, retention, reading, index and roles."""

from __future__ import annotations

from mqcore.config.choices import BrokerRole, FlushDiskType
from mqcore.config.defaults import bitmap_bits, commit_log, ha_listen_port, store_root
from mqcore.config.table import (
    BY_BROKER,
    BY_FLUSH,
    BY_HA,
    BY_PULL,
    BY_SEND,
    BY_TIMER,
    CLAMPED,
    INT_MAX,
    LONG,
    SHOWN,
    Group,
    Program,
    Unit,
    choice,
    flag,
    following,
    in_group,
    number,
    refusing,
    text,
    unused,
)
from mqcore.delay_levels import DELAY_LEVELS
from mqcore.layout import CONSUME_QUEUE_FILE_UNITS, CONSUME_QUEUE_UNIT, EXT_FILE_SIZE

CQ_UNIT_SIZE = CONSUME_QUEUE_UNIT.size  # sizes of consume queue files are multiples of it
CQ_EXT_UNIT_SIZE = 20  # bytes of a consume queue ext unit without a bitmap
EXT_FILE_END_BLANK = 4  # bytes that stay free behind the last one of a file

FILES = (
    text("storePathRootDir", store_root, "root of the store", SHOWN),
    text(
        "storePathCommitLog",
        commit_log,
        "directory of the commit log, or several separated by commas: its files are made in them in turn",
        SHOWN,
    ),
    text(
        "readOnlyCommitLogStorePaths",
        "",
        "directories, separated by commas, whose commit log files are read and, in time, deleted; none is made there",
    ),
    text(
        "multiPathSplitter rocketmq.broker.multiPathSplitter",
        ",",
        "what separates the directories above; RocketMQ takes it from the command line of its JVM",
    ),
    number(
        "mappedFileSizeCommitLog mapedFileSizeCommitLog",
        2**30,
        "size of a commit log file; must match the files on disk",
        unit=Unit.BYTES,
        minimum=4096,
    ),
    number(
        "mappedFileSizeConsumeQueue mapedFileSizeConsumeQueue",
        CONSUME_QUEUE_FILE_UNITS * CQ_UNIT_SIZE,
        "size of a consume queue file, rounded up to a multiple of 20; must match the files on disk",
        unit=Unit.BYTES,
        minimum=CQ_UNIT_SIZE,
        maximum=INT_MAX // CQ_UNIT_SIZE * CQ_UNIT_SIZE,
    ),
    flag("enableConsumeQueueExt", False, "write consume queue ext files beside the consume queues"),
    number(
        "mappedFileSizeConsumeQueueExt",
        EXT_FILE_SIZE,
        "size of a consume queue ext file; must match the files on disk",
        unit=Unit.BYTES,
        minimum=CQ_EXT_UNIT_SIZE + EXT_FILE_END_BLANK,
    ),
    flag("warmMapedFileEnable warmMappedFileEnable", False, "touch every page of a new commit log file before use"),
    number(
        "maxMessageSize", 4 * 2**20, "largest message body", BY_BROKER | BY_SEND | BY_TIMER, unit=Unit.BYTES, minimum=1
    ),
    flag("checkCRCOnRecover", True, "check the CRC of message bodies during recovery"),
)

FLUSHING = (
    choice("flushDiskType", FlushDiskType.ASYNC_FLUSH, "SYNC_FLUSH acknowledges only what is on disk", SHOWN),
    number("flushIntervalCommitLog", 500, "pause between flushes", BY_FLUSH | SHOWN, unit=Unit.MS, minimum=1),
    flag(
        "flushCommitLogTimed",
        True,
        "keep to the pause even when messages arrive",
        BY_SEND | BY_FLUSH | BY_TIMER | SHOWN,
    ),
    number("flushCommitLogLeastPages", 4, "a flush waits for this many dirty pages", BY_FLUSH, unit=Unit.PAGES),
    number(
        "flushCommitLogThoroughInterval", 10_000, "a flush this late takes any number of pages", BY_FLUSH, unit=Unit.MS
    ),
    number("flushIntervalConsumeQueue", 1_000, "pause between flushes", BY_FLUSH, unit=Unit.MS, minimum=1),
    number("flushConsumeQueueLeastPages", 2, "a flush waits for this many dirty pages", BY_FLUSH, unit=Unit.PAGES),
    number(
        "flushConsumeQueueThoroughInterval",
        60_000,
        "a flush this late takes any number of pages",
        BY_FLUSH,
        unit=Unit.MS,
    ),
    number("flushLeastPagesWhenWarmMapedFile", 4096, "warming syncs after this many pages", unit=Unit.PAGES, minimum=1),
    number(
        "flushDelayOffsetInterval", 10_000, "pause between writings of delay offsets", LONG, unit=Unit.MS, minimum=1
    ),
    number(
        "syncFlushTimeout",
        5_000,
        "a send that waits longer for the disk is told so",
        BY_BROKER | BY_SEND,
        unit=Unit.MS,
        minimum=1,
    ),
    number(
        "osPageCacheBusyTimeOutMills",
        1_000,
        "an append this slow makes sends busy",
        BY_BROKER | BY_SEND | BY_TIMER | LONG,
        unit=Unit.MS,
    ),
)

RETENTION = (
    text("deleteWhen", "04", "hours of the day at which old files go, separated by ;", BY_FLUSH | SHOWN),
    number("fileReservedTime", 72, "age at which a file is old", BY_FLUSH | SHOWN, unit=Unit.HOURS),
    number(
        "diskMaxUsedSpaceRatio",
        75,
        "a disk fuller than this loses old files at once",
        BY_FLUSH | CLAMPED,
        unit=Unit.PERCENT,
        minimum=10,
        maximum=95,
    ),
    flag("cleanFileForciblyEnable", True, "a disk about to be full loses files that are not old too", BY_FLUSH | SHOWN),
    number("cleanResourceInterval", 10_000, "pause between looks for old files", BY_FLUSH, unit=Unit.MS, minimum=1),
    number("deleteCommitLogFilesInterval", 100, "pause between two deletions", BY_FLUSH, unit=Unit.MS),
)

READING = (
    number("maxTransferBytesOnMessageInMemory", 262_144, "bytes of one pull", BY_PULL | SHOWN, unit=Unit.BYTES),
    number("maxTransferCountOnMessageInMemory", 32, "messages of one pull", BY_PULL | SHOWN),
    number("maxTransferBytesOnMessageInDisk", 65_536, "bytes of one pull from disk", BY_PULL | SHOWN, unit=Unit.BYTES),
    number("maxTransferCountOnMessageInDisk", 8, "messages of one pull from disk", BY_PULL | SHOWN),
    number(
        "accessMessageInMemoryMaxRatio",
        40,
        "share of the machine's memory that the newest messages are thought to be in",
        BY_BROKER | BY_PULL | BY_FLUSH | SHOWN,
        unit=Unit.PERCENT,
        maximum=100,
    ),
    text("messageDelayLevel", DELAY_LEVELS, "delay of each level, from level 1; units s, m, h, d"),
)

INDEX = (
    flag("messageIndexEnable", True, "keep the index by message key", SHOWN),
    flag("messageIndexSafe", False, "recovery after a crash begins early enough to complete the index too", SHOWN),
    number("maxHashSlotNum", 5_000_000, "hash slots of an index file; must match the files on disk", minimum=1),
    number("maxIndexNum", 20_000_000, "entries of an index file; must match the files on disk", minimum=2),
    number("maxMsgsNumBatch", 64, "messages that one query by key finds at most", BY_BROKER, minimum=1),
    number("defaultQueryMaxNum", 32, "messages that a query finds when it does not say how many", BY_BROKER, minimum=1),
)

LIGHT_QUEUES = (
    flag(
        "enableLmq",
        False,
        "topics and groups named %LMQ%... need no configuration; their offsets have a file of their own",
    ),
    flag("enableMultiDispatch", False, "a message also goes into the queues that its INNER_MULTI_DISPATCH lists"),
    number("maxLmqConsumeQueueNum", 20_000, "queues named %LMQ%... that messages are put into"),
)

TIMERS = (
    flag("timerWheelEnable", True, "messages may carry the timer properties of RocketMQ 5"),
    number(
        "timerPrecisionMs",
        1_000,
        "length of a slot of the wheel; must match the files on disk. Messages are due to the millisecond",
        unit=Unit.MS,
        minimum=1,
        maximum=3_000,
    ),
    number(
        "timerMaxDelaySec",
        259_200,
        "the longest delay that is accepted, seconds",
        BY_BROKER | BY_SEND,
        minimum=1,
    ),
    number(
        "timerRollWindowSlot",
        172_800,
        "what waits longer than so many slots is stored anew on its way; below 2 or above 604740 is 604740",
    ),
    number(
        "timerCongestNumEachSlot",
        INT_MAX,
        "messages of a slot above which some are refused, and all above twice as many",
        BY_BROKER | BY_SEND,
    ),
    number("timerFlushIntervalMs", 1_000, "pause between flushes of the wheel", unit=Unit.MS, minimum=1),
    flag("timerStopEnqueue", False, "nothing new goes into the wheel; sends are still accepted", BY_TIMER),
    flag("timerStopDequeue", False, "nothing is delivered from the wheel", BY_TIMER),
    number(
        "mappedFileSizeTimerLog",
        100 * 2**20,
        "size of a timer log file; must match the files on disk",
        unit=Unit.BYTES,
        minimum=4096,
    ),
)

REPLICAS = (
    text(
        "haMasterAddress",
        "",
        "host:port where a slave's master listens for slaves; empty: the name server tells",
        SHOWN,
    ),
    number(
        "haSlaveFallbehindMax",
        256 * 2**20,
        "no send of a SYNC_MASTER waits for slaves that lag so much",
        BY_BROKER | BY_SEND,
        unit=Unit.BYTES,
    ),
    number("slaveTimeout", 3_000, "longest wait of a send for a slave", BY_BROKER | BY_SEND, unit=Unit.MS),
    flag("offsetCheckInSlave", False, "a slave corrects offsets of pulls that lie outside its queues", BY_PULL),
    number(
        "haSendHeartbeatInterval",
        5_000,
        "a slave that was sent nothing for so long is sent a heart-beat",
        BY_HA,
        unit=Unit.MS,
        minimum=1,
    ),
    number(
        "haHousekeepingInterval",
        20_000,
        "a slave that was not heard for so long is disconnected",
        BY_HA,
        unit=Unit.MS,
        minimum=1,
    ),
    number(
        "haTransferBatchSize",
        32_768,
        "largest piece of the commit log in one frame; RocketMQ's slaves take no more",
        BY_HA,
        unit=Unit.BYTES,
        minimum=1,
        maximum=4 * 2**20 - 12,
    ),
    flag(
        "haFlowControlEnable",
        False,
        "send each slave maxHaTransferByteInSecond at most, so that one that catches up leaves the rest to producers",
        BY_HA,
    ),
    number(
        "maxHaTransferByteInSecond",
        100 * 2**20,
        "bytes of the commit log for each slave and second with haFlowControlEnable; spread evenly",
        BY_HA,
        unit=Unit.BYTES,
        minimum=1,
    ),
)

ROLES = (
    choice(
        "brokerRole",
        BrokerRole.ASYNC_MASTER,
        "a SLAVE copies its master, which has the same brokerName; sends to a SYNC_MASTER wait for a slave",
        SHOWN,
    ),
)

DLEDGER = "DLedger is not built"
POOL = "appends go to the mapped file: what waits in a pool is acknowledged and lost when the process dies"
DELIVERY = "delayed messages are delivered in order"

UNUSED = (
    unused("storePathDLedgerCommitLog", "", DLEDGER, SHOWN),
    following(
        unused(
            "bitMapLengthConsumeQueueExt",
            bitmap_bits,
            "bits of a filter bitmap; RocketMQ puts this number in the place of what is given, too",
        )
    ),
    unused("commitIntervalCommitLog", 200, POOL, SHOWN),
    unused("commitCommitLogLeastPages", 4, POOL),
    unused("commitCommitLogThoroughInterval", 200, POOL),
    unused("transientStorePoolEnable", False, POOL, SHOWN),
    unused("transientStorePoolSize", 5, POOL),
    unused("fastFailIfNoBufferInStorePool", False, POOL),
    unused("useReentrantLockWhenPutMessage", True, "the put lock is shared between processes"),
    unused("destroyMapedFileIntervalForcibly", 120_000, "a file in use is unmapped when its last reader lets go"),
    unused("redeleteHangedFileInterval", 120_000, "a file in use is unmapped when its last reader lets go"),
    unused("putMsgIndexHightWater", 600_000, "RocketMQ does not use it either"),
    following(unused("haListenPort", ha_listen_port, "always listenPort + 1, in RocketMQ too")),
    unused("debugLockEnable", False, "dumps the threads of a JVM"),
    unused("duplicationEnable", False, "RocketMQ keeps it off"),
    unused("diskFallRecorded", True, "always recorded"),
    unused("deleteConsumeQueueFilesInterval", 100, "queue files are small, and too many for a pause at each"),
    refusing(
        unused("enableDLegerCommitLog", False, DLEDGER),
        "true",
        "mqcore has no DLedger, and one copy is not what the file asks for",
    ),
    unused("dLegerGroup", "", DLEDGER),
    unused("dLegerPeers", "", DLEDGER),
    unused("dLegerSelfId", "", DLEDGER),
    unused("preferredLeaderId", "", DLEDGER),
    unused("isEnableBatchPush enableBatchPush", False, DLEDGER),
    unused("enableScheduleMessageStats", True, "always counted"),
    unused("enableScheduleAsyncDeliver", False, DELIVERY),
    unused("scheduleAsyncDeliverMaxPendingLimit", 2_000, DELIVERY),
    unused("scheduleAsyncDeliverMaxResendNum2Blocked", 3, DELIVERY),
)

ROWS = in_group(
    Group.STORE,
    (*FILES, *FLUSHING, *RETENTION, *READING, *INDEX, *LIGHT_QUEUES, *TIMERS, *REPLICAS, *ROLES, *UNUSED),
    Program.BROKER,
)
