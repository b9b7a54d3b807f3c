# What the parts of a send worker share: connections, the link to the broker process, tickets of pulls under way.
#
# Everything here belongs to one thread of one process. A connection is named by its slot and generation: answers that
# come back for one that is gone find another generation and are dropped.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from mqcore._fast.base.buffers cimport Buffer
from mqcore._fast.base.layout cimport PULL_STRINGS_MAX, PULL_WORKERS_MAX, AclGrant, LatencyRow, WorkerRow
from mqcore._fast.base.worker_log cimport Warning
from mqcore._fast.log.append cimport Appender
from mqcore._fast.log.mapped_file cimport FileSet
from mqcore._fast.segment.boards cimport Shared
from mqcore._fast.segment.link cimport Link
from mqcore._fast.segment.quotas cimport QuotaBook
from mqcore._fast.segment.rings cimport Ring
from mqcore._fast.send.guard cimport GuardTable
from mqcore._fast.tls.session cimport TlsLink, TlsSession

cdef enum:
    READ_SIZE = 262144          # bytes asked of the socket at once
    SCRATCH_SIZE = 4 * PULL_STRINGS_MAX      # unescaped header fields of one request
    MEMBERS_MAX = 262144        # of one batch
    LOOK_MS = 1000              # what a worker was busy with is known of as much time, or twice
    LISTENERS_MAX = 4           # sockets that clients connect to
    ASKER_BUCKETS = 1024
    # Marks in epoll's data, below every connection's id.
    MARK_WAKE = 0
    MARK_LINK = 1
    MARK_LISTENER = 2

# How a connection's bytes travel. What it is to be is known by its first byte.
cdef enum Transport:
    TRANSPORT_PLAIN, TRANSPORT_TLS, TRANSPORT_OPEN

# tls.server.mode.
cdef enum TlsMode:
    TLS_DISABLED, TLS_PERMISSIVE, TLS_ENFORCING

# Why a connection is closed before it has said anything in this protocol.
cdef enum TransportRefusal:
    REFUSED_TLS, REFUSED_PLAIN, REFUSED_WITHOUT_CONTEXT, REFUSED_HANDSHAKE, REFUSED_SLOW_HANDSHAKE, REFUSALS

# A client that waits for answers of request-reply; see askers.pxd.
cdef struct Asker:
    Asker *next                 # of the same bucket
    uint64_t hashed
    int32_t slot                # of its connection
    int32_t size
    uint8_t name[1]             # its id

cdef struct Connection:
    int32_t slot
    uint32_t generation
    int fd
    Transport transport
    TlsSession *tls             # of TRANSPORT_TLS; else NULL
    bint is_vip
    bint is_known               # the broker process has heard of it
    bint is_dirty               # stands in the list of connections with answers to write
    bint is_closing             # to be closed at the end of this turn
    bint wants_write            # EPOLLOUT is armed
    bint is_paused              # EPOLLIN is off: it does not read its answers
    bint is_held                # EPOLLIN is off: it asks the broker process for more than that can answer
    uint8_t address[16]
    int32_t address_size
    int32_t port
    int64_t active_at           # coarse_ms of the last read or write
    AclGrant grant              # who its requests are from; of version 0 = not known
    Buffer partial              # the start of a frame that has not come whole
    Buffer out
    int64_t unsent_bytes        # its part of the sum of that name
    int32_t first_ticket        # of those of its pulls that are under way, newest first; -1 = none
    int32_t ticket_count
    Asker *asker                # whose answers it takes; NULL = nobody's, as far as is known here
    int32_t push_count          # answers that were pushed to it, and not taken yet

# An answer that waits until the message is on disk, or on a slave.
cdef struct Waiting:
    int64_t connection_id
    int64_t end_offset
    int64_t since               # coarse_ms of its append
    int64_t came_ns             # turn_ns of the turn that it came in
    int64_t queue_offset
    int64_t physical_offset
    int32_t opaque
    int32_t serialize_type
    int32_t queue_id
    int32_t ids_size
    uint8_t *ids                # message ids of a batch, owned; NULL = one id from physical_offset
    bint is_short               # the answer is a code and *remark*: the end of a transaction
    const char *remark          # a literal; NULL = none
    bint needs_flush
    bint needs_slave
    int32_t slave_code          # SLAVE_NOT_AVAILABLE: there was nobody to wait for; else 0
    uint8_t *handle             # recall handle of a message with a timer, owned; NULL = none
    int32_t handle_size

# A pull that is with a pull worker.
cdef struct Ticket:
    int64_t connection_id       # 0 = free
    int64_t queue_offset
    int64_t came_ns             # turn_ns of the turn that it came in
    int32_t opaque
    int32_t serialize_type
    int32_t serial
    int32_t puller
    int32_t next                # of the same connection; or free; or ended and of the same pull worker. -1 = the last
    int32_t previous            # of the same connection; -1 = the first

# An answer of request-reply that was pushed to who asked, and has not been taken yet.
cdef struct Push:
    Push *next                  # the next younger one
    Push *previous
    int64_t answerer_id         # connections
    int64_t asker_id
    int64_t deadline            # coarse ms
    int64_t queue_offset
    int64_t physical_offset     # -1 = it is not kept
    int32_t number              # the opaque of the push
    int32_t opaque              # of the answer, which is answered when the asker has spoken
    int32_t serialize_type
    int32_t queue_id
    int32_t asker_size
    uint8_t asker[1]            # its client id

cdef struct Pushes:
    Push **places               # by the low bits of their numbers; NULL = free
    int32_t number              # that was given last
    Push *oldest
    Push *youngest
    Asker *askers[ASKER_BUCKETS]
    uint64_t asker_seed
    bint has_lost_asker         # a connection was closed that had not taken all its answers
    Warning not_taken

# A send that is above a quota, as it came, until it is due.
cdef struct Parked:
    int64_t due_ms              # coarse
    int64_t number              # in the order of their coming
    int64_t connection_id
    uint8_t *payload            # owned
    int32_t size

# What the worker was busy with lately, coarse ms.
cdef struct Pressure:
    int64_t began_ms            # its last turn
    int64_t ended_ms
    bint was_long               # the turn before this one took longer than a request may wait
    int64_t since_ms            # of the values below
    int64_t idle_ms             # between turns
    int64_t cpu_ms              # of this thread, at since_ms
    int64_t delayed_ms          # what it had waited for a processor then

cdef struct SendSettings:
    int32_t max_message_size
    int32_t frame_length_max
    int64_t write_buffer_max    # a connection with more unsent bytes is closed
    int64_t read_budget         # bytes of partial frames over all connections
    int64_t write_budget        # bytes of unsent answers over all connections
    int64_t idle_timeout_ms
    int64_t sync_timeout_ms
    bint waits_for_flush        # SYNC_FLUSH
    bint waits_for_slave        # SYNC_MASTER
    bint in_group               # of brokers that elect their master: who must have a message is not asked here
    int64_t slave_timeout_ms
    int64_t slave_lag_max       # slaves that lag so many bytes are nobody to wait for
    int64_t wait_limit_ms       # the least of the two below; 0 = nobody waits too long
    int64_t send_wait_ms        # a send that has waited so long is refused; 0 = none is
    int64_t transaction_wait_ms
    int64_t lock_timeout_ms     # osPageCacheBusyTimeOutMills: an append that takes longer makes others busy
    int64_t quota_delay_max_ms
    int64_t waiting_max         # answers that wait for disk or slave
    bint limits_pulling_clients
    int64_t connections_max     # over all send workers; 0 = as many as come
    int64_t connections_per_host_max
    bint is_guarded             # aclEnable: who asks must be known
    bint refuses_halves         # rejectTransactionMessage
    bint keeps_replies          # storeReplyMessageEnable
    int64_t push_timeout_ms
    bint wakes_flush            # the flush worker wants to know of what was appended
    int32_t puller_count
    int32_t cluster_property_size
    const uint8_t *cluster_property      # CLUSTER \1 name
    int32_t region_size
    const uint8_t *region
    int32_t broker_name_size
    const uint8_t *broker_name
    int64_t timer_max_delay_ms  # 0 = every message with a timer is the broker process's
    int64_t timer_precision_ms
    int32_t trace_on_size
    const uint8_t *trace_on
    TlsMode tls_mode
    int64_t handshake_timeout_ms

# What the answers to sends have in common: the texts around queue id, message id, queue offset and opaque.
cdef enum:
    ANSWER_PARTS = 5

cdef struct AnswerText:
    const uint8_t *parts[ANSWER_PARTS]
    int32_t sizes[ANSWER_PARTS]
    int64_t room                # that an answer needs at most

# A worker to be told of news, if its row says that it sleeps.
cdef struct Sleeper:
    WorkerRow *row
    int wake

# A pull worker, and what this worker and it have to say to each other.
cdef struct Puller:
    WorkerRow *row
    int wake
    int64_t generation
    Ring requests
    Ring replies
    bint has_news               # of ours, in this turn
    int32_t ended               # tickets that it must be told of before they are free, newest first; -1 = none
    int32_t ended_count
    bint has_begun              # it lets go of what a predecessor of this worker has asked for

cdef struct ListenerSet:
    int fds[LISTENERS_MAX]
    bint is_vip[LISTENERS_MAX]
    int count
    bint are_armed

cdef struct ClientTable:
    Connection **slots
    int32_t capacity
    int32_t count
    int32_t slot_free           # lowest slot worth looking at
    uint32_t generation_next
    int32_t *dirty
    int32_t dirty_count
    int64_t partial_bytes       # memory of partial frames over all connections
    int64_t unsent_bytes        # memory of unsent answers over all connections, as of each one's last write
    bint has_held               # some connection is_held

cdef struct WaitingAnswers:
    Waiting *answers            # ring in the order of end_offset
    int64_t head
    int64_t tail
    int64_t capacity

cdef struct TicketTable:
    Ticket *slots
    int32_t free                # -1 = none
    int32_t left
    bint has_ended              # some pull worker must be told of some
    bint may_pull               # all pull workers have begun

cdef struct ParkedSends:
    Parked *sends               # a heap, the one that is due first at its top
    int64_t count
    int64_t capacity
    int64_t number
    int64_t bytes

# How long the worker looks out for what comes next before it sleeps.
cdef struct Linger:
    bint was_busy               # the last turn had events
    int32_t misses              # times in a row that nothing came while it lingered
    int32_t pause               # turns before it lingers again

cdef struct TransportState:
    TlsLink link
    bint wants_context          # a handshake waits for link.context
    bint has_no_context         # there will be none
    Warning refusals[REFUSALS]

cdef struct SendState:
    Shared *shared
    WorkerRow *row
    int worker_number
    SendSettings settings
    AnswerText answer
    GuardTable guard            # with is_guarded only
    Appender appender
    FileSet *read_files
    int epoll
    int wake
    Link link
    bint link_wants_write       # EPOLLOUT is armed
    ListenerSet listeners
    ClientTable clients
    TransportState tls
    WaitingAnswers waiting
    Pushes pushes
    TicketTable tickets
    QuotaBook quotas
    ParkedSends parked
    Warning crowded
    Puller pullers[PULL_WORKERS_MAX]
    Sleeper reput
    Sleeper flush
    Sleeper ha
    bint has_appended           # in this turn
    bint has_started
    bint is_draining
    int64_t drain_deadline
    int64_t turn_ms             # coarse_ms of this turn
    int64_t turn_ns             # monotonic_ns of its start
    int64_t written_ns          # monotonic_ns when the sends that it answered were written; 0 = it answered none
    int64_t answered_ns         # monotonic_ns behind the last answer that was looked at; 0 = too long ago
    int64_t answered[2]         # sends of this turn that were answered at once: confirmed, and unconfirmed
    LatencyRow *latencies       # its own, by LatencyKind
    int64_t arrived_ms          # since when, at least, what is being handled has been here
    int32_t events_left         # connections that wait for their part of this turn
    Pressure pressure
    bint is_put_busy            # the last append did not get the put lock in time
    int64_t housekeeping_at
    Linger linger
    Warning unreadable
    int32_t last_topic_row      # of the last send: where the next one's is likely to be
    int32_t last_queue_row
    uint32_t random
    uint8_t *read_buffer
    uint8_t *scratch
    int64_t *starts
