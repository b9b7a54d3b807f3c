"""Rows in shared memory, in the machine's byte order; who writes what: workers/SHARING.md."""

from __future__ import annotations

from mqcore.layout.tables import CACHE_LINE, Field, Layout, line

SHARED_MAGIC = 0x4D51434F52450001


LATENCY_OCTAVES = 19
LATENCY_BOUNDS_US = (
    *(bound for octave in range(LATENCY_OCTAVES) for bound in (16 << octave, 24 << octave)),
    16 << LATENCY_OCTAVES,
)
"""Upper bounds, exclusive, of the latencies that are counted together: two for each power of two, 16 us to 8.4 s."""

PUT_TALLY_BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
"""Upper bounds, exclusive, of the times by which puts are counted: RocketMQ's distribution of put times."""

STORE_BOARD = Layout(
    "store_board",
    size=29 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="One row: watermarks, locks, flags and totals of the store.",
    fields=(
        *line(
            Field("magic", "q", "SHARED_MAGIC, written last when the segment is ready"),
            Field("boot_timestamp", "q", "when the broker process made the segment, ms"),
            Field("commit_log_file_size", "q", "bytes"),
            Field("store_host_port", "i", "the broker's port"),
            Field("store_host_size", "i", "4 or 16 address bytes"),
            Field("store_host", "16s", "the broker's address bytes"),
        ),
        *line(
            Field("wrote_offset", "q", "end of the last complete record, bytes"),
            Field("wrote_timestamp", "q", "its store time, ms"),
            Field("readable_offset", "q", "how far the log may be read, by whomsoever, bytes"),
            Field("read_gates", "q", "bits: see ReadGate; 0 = what is written may be read"),
        ),
        *line(
            Field("flushed_offset", "q", "everything before it survives a power cut, bytes"),
            Field("flushed_timestamp", "q", "store time of the newest record known to be flushed, ms"),
        ),
        *line(
            Field("dispatched_offset", "q", "everything before it is in consume queues and index, bytes"),
            Field("dispatched_timestamp", "q", "store time of the newest dispatched record, ms"),
            Field("index_timestamp", "q", "end timestamp of the last full index file, ms"),
        ),
        *line(Field("min_offset", "q", "start of the oldest commit log file that is kept, bytes")),
        *line(
            Field("prepared_end", "q", "files exist, with all blocks reserved, up to here, bytes"),
            Field("warmed_end", "q", "pages are in memory up to here, bytes"),
            Field("cold_end", "q", "everybody lets go of the pages before it, bytes"),
        ),
        *line(
            Field("config_epoch", "q", "grows when the answer of any pull check may have changed; see epoch_row"),
            Field("settings_version", "q", "version of the settings on the sheet; 0 = those of the start"),
            Field("acl_version", "q", "version of the rules of access that hold; 0 = none have been read"),
        ),
        *line(
            Field("store_flags", "q", "bits: see StoreFlag"),
            Field("error_number", "i", "errno of the failure that made the store read-only"),
            Field("error_where", "i", "WorkerKind that met it"),
            Field("error_offset", "q", "physical offset where it was met, bytes"),
        ),
        *line(Field("locked_since", "q", "when the put lock was taken, ms; 0 when free")),
        *line(Field("put_lock", "64s", "pthread mutex, robust and process-shared: guards appends")),
        *line(Field("board_lock", "64s", "pthread mutex, robust and process-shared: guards new rows")),
        *line(
            Field("intent_end", "q", "an append is under way and will publish this wrote_offset; 0 = none"),
            Field("intent_next_offset", "q", "the queue's next_offset once it is published"),
            Field("intent_queue_row", "i", "the queue it belongs to"),
            Field("intent_topic_row", "i", "the topic it belongs to"),
            Field("intent_count", "q", "how many messages"),
            Field("intent_size", "q", "how many bytes"),
            Field("intent_second_next_offset", "q", "next_offset of the second queue that a pair of messages goes to"),
            Field("intent_second_queue", "i", "its queue row plus one; 0 = the append has no second queue"),
        ),
        *line(
            Field("put_times", "q", "messages appended since start"),
            Field("put_bytes", "q", "bytes appended since start"),
            Field("put_failed", "q", "appends refused since start"),
            Field("put_ms_max", "q", "longest append, the wait for the put lock included, ms"),
        ),
        *line(
            *(
                Field(f"put_tally_{number}", "q", f"puts that took less than {bound} ms, and no less than those before")
                for number, bound in enumerate(PUT_TALLY_BOUNDS_MS)
            ),
            Field(f"put_tally_{len(PUT_TALLY_BOUNDS_MS)}", "q", "puts that took longer"),
        ),
        *line(
            Field("topic_rows", "i", "rows in use"),
            Field("queue_rows", "i", "rows in use"),
            Field("group_rows", "i", "rows in use"),
            Field("offset_rows", "i", "rows in use"),
        ),
        *line(
            Field("get_times", "q", "messages handed to consumers since start"),
            Field("get_bytes", "q", "bytes handed to consumers since start"),
            Field("get_found", "q", "pulls that found messages"),
            Field("get_missed", "q", "pulls that found nothing"),
        ),
        *line(
            Field("put_repairs", "q", "put locks taken over from a dead owner"),
            Field("file_rolls", "q", "commit log files begun since start"),
        ),
        *line(
            Field("delete_orders", "q", "how often an administrator asked for expired files to be deleted"),
            Field("drops", "q", "how often queues were dropped"),
        ),
        *line(
            Field("timer_row", "q", "row + 1 of the timer topic's queue; 0 = this store has no timers"),
        ),
        *line(
            Field("keeps_metadata", "q", "1 = of a failover group: what changes in tables is told in the log"),
            Field("drops_applied", "q", "queues are dropped that records before this offset name, bytes"),
        ),
        *line(
            Field("drops_met", "q", "end of the newest record that drops queues and was met in dispatch, bytes"),
        ),
        *line(
            Field("timer_keeps", "q", "records from it on may be waited for; 0 = none is"),
            Field("timer_read_time", "q", "everything in the slots before it is delivered, ms"),
            Field("timer_queue_offset", "q", "next unit of the timer topic to be put into the wheel"),
            Field("timer_pending", "q", "messages that wait, those of deletions taken off"),
            Field("timer_enqueued", "q", "messages put into the wheel since start"),
            Field("timer_delivered", "q", "messages delivered since start"),
            Field("timer_rolled", "q", "messages put into the timer topic again since start"),
            Field("timer_recalled", "q", "messages not delivered since start because they were recalled"),
        ),
        *line(
            Field("replicated_offset", "q", "greatest end that a slave has reported, never above the log's, bytes"),
            Field("slave_count", "q", "slaves that copy the log now"),
            Field("ha_wanted", "q", "the log is kept from here on for them, bytes, at least 1; 0 = they need nothing"),
        ),
        *line(
            Field("received_offset", "q", "of a slave: bytes of its master may lie behind wrote_offset up to here"),
            Field("master_seen", "q", "of a slave: when its master was last heard, ms; 0 = not connected"),
            Field("master_end", "q", "of a slave: end of the newest frame that its master sent, bytes"),
            Field("master_state", "q", "of a slave: see MasterState"),
            Field("followed_version", "q", "of a slave: the master_version it goes by; those before are closed"),
            Field("master_heard", "q", "of a slave: its master's last frame, ms of the monotonic clock; 0 = none yet"),
        ),
        *line(
            Field("master_version", "q", "of a slave: grows when the address of its master has changed"),
            Field("master_port", "i", "where the master listens for slaves; 0 = not known"),
            Field("master_host_size", "i", "4 or 16 address bytes"),
            Field("master_host", "16s", "its address bytes"),
            Field("master_start", "q", "where an empty log begins: 0 = with all; -1 = where the master begins, bytes"),
        ),
        *line(
            Field("ha_role", "q", "of a broker in a failover group: see HaRole"),
            Field("ha_term", "q", "the epoch that it leads or follows; 0 = none yet"),
            Field("ha_member", "q", "its id in the group"),
            Field("ha_nonce", "q", "of its life: what it announces itself by"),
            Field("epoch_start", "q", "of a master: where the epoch that it leads begins, bytes"),
            Field("required_version", "q", "grows before and behind each change of the next two: odd = under way"),
            Field("required_generation", "q", "number of the required set; 0 = there is none, nothing is confirmed"),
            Field("required_members", "q", "who must have what is confirmed: bit by id"),
        ),
        *line(
            Field("confirmed_offset", "q", "all required members have the log up to here, bytes"),
            Field("required_seen", "q", "generation that confirmed_offset goes by, from here on"),
        ),
        *line(
            Field("doubts_until", "q", "how long offsets of clients are doubted, coarse ms; 0 = not at all"),
        ),
    ),
)
SLAVE_ROW = Layout(
    "slave_row",
    size=2 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="A connection of a slave to this master; the ha worker writes all of it.",
    fields=(
        Field("state", "q", "SlaveState"),
        Field("port", "i", "of the slave's end of the connection"),
        Field("host_size", "i", "4 or 16 address bytes"),
        Field("host", "16s", "its address bytes"),
        Field("connected_at", "q", "when it connected, ms"),
        Field("acked", "q", "the end that it has reported, bytes; -1 = none yet"),
        Field("acked_at", "q", "when it did so, ms"),
        Field("sent", "q", "end of what was sent to it, bytes"),
        Field("caught_up_at", "q", "when it last had all that the log had, ms; 0 = never"),
        Field("sent_bytes", "q", "bytes of the log sent over this connection"),
        Field("member", "q", "id in the failover group; -1 = of none"),
        Field("pad", "40s", "to the next cache line"),
    ),
)
TOPIC_ROW = Layout(
    "topic_row",
    size=3 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="A row belongs to its topic for the life of the segment.",
    fields=(
        Field("config", "q", "one word: see TopicWord"),
        Field("put_nums", "q", "messages appended since start"),
        Field("put_bytes", "q", "bytes appended since start"),
        Field("name_size", "i", "bytes"),
        Field("spare", "i", "0"),
        Field("name", "128s", "UTF-8; never changes once published"),
        Field("pad", "32s", "to the next cache line"),
    ),
)
QUEUE_ROW = Layout(
    "queue_row",
    size=2 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="First line: the put lock's holder. Second line: the reput worker, but for what is said. A bound counts only "
    "while its birth is the queue's.",
    fields=(
        *line(
            Field("topic_row", "i", "the topic"),
            Field("queue_id", "i", "the queue's number"),
            Field("next_offset", "q", "queue offset of the next message; its complement while the queue is dropped"),
            Field("born", "q", "physical offset: records that start before it are of a queue that was dropped"),
            Field("epoch_offset", "q", "of a master in a failover group: next_offset when its epoch began"),
            Field("doubt_offset", "q", "while clients are doubted: what is behind it; -1 = what is not committed"),
        ),
        *line(
            Field("max_offset", "q", "consume queue units readable, as an absolute queue offset"),
            Field("max_physical", "q", "end of the newest record in the consume queue, bytes"),
            Field("max_born", "q", "the birth of the queue that these two and the files are of"),
            Field("min_offset", "q", "oldest queue offset that is kept; the flush worker writes it"),
            Field("flushed_units", "q", "units known to be on disk; the flush worker writes it"),
            Field("min_born", "q", "the birth of the queue that these two are of; the flush worker writes it"),
            Field("waiters", "q", "pulls held for this queue; the pull workers write it"),
            Field("cradle", "q", "all its units lie in a cradle: serial << 16 | number + 1; 0 = in files"),
        ),
    ),
)
CRADLE_ROW = Layout(
    "cradle_row",
    size=CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="A cradle has the first units of a new queue until its first file is there. The reput worker writes all of it, "
    "and the units, which lie in a region of their own.",
    fields=(
        *line(
            Field("queue_row", "q", "the queue, plus one; 0 = free"),
            Field("serial", "q", "how often the cradle was taken"),
            Field("count", "q", "units that are whole"),
        ),
    ),
)
GROUP_ROW = Layout(
    "group_row",
    size=5 * CACHE_LINE,
    place="shared",
    source="mqcore",
    fields=(
        Field("name_size", "i", "bytes"),
        Field("spare", "i", "0"),
        Field("name", "256s", "UTF-8; never changes once published"),
        Field("pad", "56s", "to the next cache line"),
    ),
)
OFFSET_ROW = Layout(
    "offset_row",
    size=CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="One per (group, topic, queue). committed: the last store wins, as in RocketMQ's table.",
    fields=(
        Field("group_row", "i", "the group"),
        Field("queue_row", "i", "the queue"),
        Field("committed", "q", "next queue offset to consume; -1 = none"),
        Field("get_nums", "q", "messages handed out since start"),
        Field("get_bytes", "q", "bytes handed out since start"),
        Field("get_timestamp", "q", "when messages were last handed out, ms"),
        Field("behind_bytes", "q", "commit log bytes behind at the last pull"),
        Field("pulls", "q", "pulls answered with messages since start"),
        Field("pull_offset", "q", "queue offset that the last pull was told to go on at; 0 = none yet"),
    ),
)
EPOCH_ROW = Layout(
    "epoch_row",
    size=8,
    place="shared",
    source="mqcore",
    doc="What a pull check's answer rests on: a topic and a group have the rows that their names hash to. The sum "
    "of both and config_epoch is the answer's epoch: each only grows, so the sum stays while all three do.",
    fields=(Field("epoch", "q", "grows when something changes about a topic, or a group, whose name hashes here"),),
)
WORKER_ROW = Layout(
    "worker_row",
    size=5 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="The broker process writes the first line, the worker the rest; sleeping is read by whoever may wake it.",
    fields=(
        *line(
            Field("kind", "i", "WorkerKind"),
            Field("number", "i", "from 0 within its kind"),
            Field("pid", "q", "0 = not running"),
            Field("generation", "q", "how often it has died; what a dead one held is given up when this changes"),
            Field("command", "q", "WorkerCommand"),
        ),
        *line(
            Field("sleeping", "q", "1 = wants a wake through its eventfd"),
            Field("settings_version", "q", "version of the settings that it goes by"),
        ),
        *line(
            Field("state", "q", "WorkerState"),
            Field("heartbeat", "q", "last turn of its loop, ms"),
            Field("turns", "q", "turns of its loop since start"),
            Field("wakes", "q", "wakes it sent since start"),
            Field("units", "q", "what it exists for, done since start: frames, pulls, records, syncs"),
            Field("bytes", "q", "bytes it handled since start"),
            Field("refused", "q", "requests it refused since start"),
            Field("backlog", "q", "work it knows of and has not done"),
        ),
        *line(
            Field("connections", "q", "open connections"),
            Field("accepted", "q", "connections accepted since start"),
            Field("parked", "q", "answers or pulls that wait"),
            Field("buffered", "q", "bytes in connection buffers"),
            Field("protocol_errors", "q", "connections closed for bad frames"),
            Field("slow_readers", "q", "connections closed for not reading"),
            Field("released", "q", "it has let go of the commit log's pages before it, bytes"),
            Field("read_ms_max", "q", "pull workers: longest reading of what a pull found, ms"),
        ),
        *line(
            Field("handshakes", "q", "TLS connections made since start"),
            Field("handshakes_failed", "q", "connections closed in their TLS handshake, or for being late with it"),
            Field("transport_refused", "q", "connections closed for coming plain or with TLS where they may not"),
            Field("timed_out", "q", "requests refused because they had waited too long"),
            Field("page_cache_busy", "q", "sends refused because somebody appended for too long"),
            Field("quota_delayed", "q", "requests that waited for a quota"),
            Field("quota_refused", "q", "requests that a quota has refused"),
            Field("connections_refused", "q", "connections closed at once because there were too many"),
        ),
    ),
)
LATENCY_ROW = Layout(
    "latency_row",
    size=6 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="How long a send worker's answers of one LatencyKind took, counted by LATENCY_BOUNDS_US.",
    fields=(
        *line(
            Field("sum_us", "q", "of all of them, us"),
            *(
                Field(f"count_{number}", "q", f"answers that took less than {bound} us, and no less than those before")
                for number, bound in enumerate(LATENCY_BOUNDS_US)
            ),
            Field(f"count_{len(LATENCY_BOUNDS_US)}", "q", "answers that took longer"),
        ),
    ),
)
QUOTA_ROW = Layout(
    "quota_row",
    size=32,
    place="shared",
    source="mqcore",
    doc="What a topic, group or client has used of its quota. One that is idle says nothing, and its row may be taken "
    "by another. A time ahead of now is what must pass before all that was let through fits the rate.",
    fields=(
        Field("key", "q", "hash of what is limited; 0 = free"),
        Field("messages_until", "q", "the messages let through fit their rate then, coarse time in ns"),
        Field("bytes_until", "q", "the same of bytes"),
        Field("spare", "q", "0"),
    ),
)
SETTINGS_HEAD = Layout(
    "settings_head",
    size=16,
    place="shared",
    source="mqcore",
    doc="Start of the settings sheet, a memory file of its own. Behind it: the text of SettingValues.to_json.",
    fields=(
        Field("version", "q", "grows with each change; 0 = nothing is written yet"),
        Field("size", "i", "bytes of the text"),
        Field("crc", "i", "CRC32 of version and text: a sheet that is being written is read again"),
    ),
)
RING_HEAD = Layout(
    "ring_head",
    size=3 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="One producer, one consumer. Entries start on 8 bytes; an entry never wraps.",
    fields=(
        *line(Field("capacity", "q", "bytes of data, a power of two")),
        *line(
            Field("tail", "q", "bytes produced since start; the producer writes it"),
            Field("refused", "q", "entries that did not fit; the producer writes it"),
        ),
        *line(Field("head", "q", "bytes consumed since start; the consumer writes it")),
    ),
)
RING_ENTRY = Layout(
    "ring_entry",
    size=8,
    place="shared",
    source="mqcore",
    fields=(
        Field("size", "i", "bytes of payload; -1 = skip to the start of the ring"),
        Field("kind", "i", "what the payload is"),
    ),
)
