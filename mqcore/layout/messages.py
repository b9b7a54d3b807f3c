"""What processes tell each other through rings and links, in the machine's byte order."""

from __future__ import annotations

from mqcore.layout.tables import Field, Layout

PULL_REQUEST = Layout(
    "pull_request",
    size=112,
    place="shared",
    source="mqcore",
    doc="Send worker to pull worker. Behind it: topic, group, subscription, expression type.",
    fields=(
        Field("connection_id", "q", "names the connection for the life of the broker"),
        Field("queue_offset", "q", "wanted"),
        Field("commit_offset", "q", "to be stored when COMMIT_OFFSET is set"),
        Field("suspend_timeout_ms", "q", "how long the client lets the pull be held"),
        Field("sub_version", "q", "the client's subscription version"),
        Field("ticket", "i", "the send worker's slot for this pull, and above its 16 bits which use of the slot it is"),
        Field("opaque", "i", "request id"),
        Field("serialize_type", "i", "of the request"),
        Field("code", "i", "PULL_MESSAGE or LITE_PULL_MESSAGE"),
        Field("queue_id", "i", "queue"),
        Field("sys_flag", "i", "PullSysFlag"),
        Field("max_msg_nums", "i", "at most so many messages"),
        Field("version", "i", "of the client"),
        Field("topic_size", "i", "bytes"),
        Field("group_size", "i", "bytes"),
        Field("subscription_size", "i", "bytes; -1 = absent"),
        Field("expression_type_size", "i", "bytes; -1 = absent"),
        Field("principal", "q", "who asks, as the broker process counts them; 0 = nobody known"),
        Field("since", "q", "when it came, coarse ms"),
        Field("client_key", "q", "of the client in the quotas; 0 = none is set for clients"),
    ),
)
PULL_REPLY = Layout(
    "pull_reply",
    size=80,
    place="shared",
    source="mqcore",
    doc="Pull worker to send worker. Behind it: range_count PULL_RANGEs. With the status WAITED_TOO_LONG max_offset "
    "says how long, ms.",
    fields=(
        Field("connection_id", "q", "from the request"),
        Field("next_begin_offset", "q", "where to pull next"),
        Field("min_offset", "q", "of the queue"),
        Field("max_offset", "q", "of the queue"),
        Field("suggest_broker_id", "q", "where to pull next"),
        Field("woken", "q", "when its hold ended, ns since the machine started; 0 = it was not held"),
        Field("ticket", "i", "from the request"),
        Field("code", "i", "ResponseCode"),
        Field("status", "i", "GetStatus: its name is the remark"),
        Field("range_count", "i", "ranges that follow"),
        Field("total_size", "i", "bytes over all ranges"),
        Field("was_held", "i", "1 = answered after a hold, in the server's own header type"),
        Field("message_count", "i", "messages over all ranges"),
        Field("refused", "i", "1 = the broker process answered the client itself; only free the ticket"),
    ),
)
PULL_RANGE = Layout(
    "pull_range",
    size=16,
    place="shared",
    source="mqcore",
    fields=(
        Field("physical_offset", "q", "start in the commit log"),
        Field("size", "q", "bytes"),
    ),
)
RESOLVE = Layout(
    "resolve",
    size=8,
    place="shared",
    source="mqcore",
    doc="Pull worker to broker process, over the link: may this pull be served, and how? Behind it: the PULL_REQUEST.",
    fields=(Field("resolve_id", "q", "comes back in the binding"),),
)
BINDING = Layout(
    "binding",
    size=72,
    place="shared",
    source="mqcore",
    doc="Broker process to pull worker: every check is passed, until its epoch changes. Behind it: i32 tag codes, "
    "sorted; i32 bits of the group in filter bitmaps; the compiled filter.",
    fields=(
        Field("resolve_id", "q", "from the question"),
        Field("epoch", "q", "that of topic and group before the checks were made, see epoch_row; -1 = good for once"),
        Field("suspend_limit_ms", "q", "how long a pull may be held; -1 = as long as the client asks"),
        Field("broker_id", "i", "to suggest in general"),
        Field("slow_broker_id", "i", "to suggest to a group that reads far behind"),
        Field("match_all", "i", "1 = every message"),
        Field("tag_count", "i", "tag codes that follow"),
        Field("refused", "i", "1 = the client has been answered; nothing else of this is set"),
        Field("suspend_max_ms", "i", "how long a pull may be held at most, if the client decides it"),
        Field("bitmap_from", "q", "bitmaps of messages from this physical offset on have the group's bits; -1 = none"),
        Field("filter_size", "i", "bytes of the compiled filter; 0 = tags decide alone"),
        Field("bitmap_bits", "i", "how many bits such a bitmap has"),
        Field("bit_count", "i", "bits of the group that follow"),
        Field("queue_count", "i", "queues of the topic that may be read, all in this same way"),
    ),
)
FILTER_HEAD = Layout(
    "filter_head",
    size=16,
    place="shared",
    source="mqcore",
    doc="An SQL92 expression, compiled (mqcore/filter/program.py). Behind it: filter_step, filter_name, texts.",
    fields=(
        Field("step_count", "i", "steps that follow"),
        Field("name_count", "i", "names of properties that follow the steps, FILTER_NAMES_MAX at most"),
        Field("depth", "i", "values on the stack at a time, FILTER_DEPTH_MAX at most"),
        Field("text_size", "i", "bytes of texts behind the names"),
    ),
)
FILTER_STEP = Layout(
    "filter_step",
    size=16,
    place="shared",
    source="mqcore",
    doc="What each does with *size* and *value* stands beside FilterOp.",
    fields=(
        Field("op", "i", "FilterOp"),
        Field("size", "i", "bytes of a text, number of a name, count of texts, or part of a text"),
        Field("value", "q", "where a text begins, a number, the bits of a double, a step to go on at, or 1 for NOT"),
    ),
)
FILTER_NAME = Layout(
    "filter_name",
    size=8,
    place="shared",
    source="mqcore",
    fields=(Field("at", "i", "where it begins in the texts"), Field("size", "i", "bytes")),
)
TOPIC_FILTERS = Layout(
    "topic_filters",
    size=24,
    place="shared",
    source="mqcore",
    doc="Broker process to reput worker, over the link: make the bitmaps of a topic's messages by these filters, and "
    "no others. Behind it: topic; for each filter i32 bytes of it, i32 bits, the compiled filter.",
    fields=(
        Field("request_id", "q", "comes back in filters_taken"),
        Field("topic_size", "i", "bytes"),
        Field("filter_count", "i", "filters that follow; 0 = no bitmaps any more"),
        Field("bitmap_bits", "i", "bits of a bitmap"),
        Field("bit_count", "i", "bits of each filter"),
    ),
)
ACL_TABLE = Layout(
    "acl_table",
    size=16,
    place="shared",
    source="mqcore",
    doc="Broker process to send worker, over the link: the accounts that there are now. Behind it: acl_account "
    "for each, with key, secret, and acl_rule with its name for each of its rules.",
    fields=(
        Field("version", "q", "of the rules of access; see acl_version of the board"),
        Field("account_count", "i", "accounts that follow"),
        Field("rule_count", "i", "rules of all accounts together"),
    ),
)
ACL_ACCOUNT = Layout(
    "acl_account",
    size=24,
    place="shared",
    source="mqcore",
    doc="One account in an acl_table.",
    fields=(
        Field("key_size", "i", "bytes"),
        Field("secret_size", "i", "bytes"),
        Field("rule_count", "i", "rules that follow"),
        Field("default_topic_perm", "i", "bits: see AclPerm"),
        Field("default_group_perm", "i", "bits: see AclPerm"),
        Field("may_do_all", "i", "1 = it is not asked for permissions"),
    ),
)
ACL_RULE = Layout(
    "acl_rule",
    size=8,
    place="shared",
    source="mqcore",
    doc="What an account may do with one topic, or with one group, which stands for its retry topic.",
    fields=(Field("name_size", "i", "bytes"), Field("perm", "i", "bits: see AclPerm")),
)
ACL_GRANT = Layout(
    "acl_grant",
    size=16,
    place="shared",
    source="mqcore",
    doc="Broker process to send worker, over the link: who the connection's requests are from.",
    fields=(
        Field("version", "q", "of the rules of access that it was decided by; with others it is nothing"),
        Field("account", "i", "number of the account in acl_table; -1 = its address lets everybody in"),
        Field("trust", "i", "bits: see AclTrust"),
    ),
)
FILTERS_TAKEN = Layout(
    "filters_taken",
    size=16,
    place="shared",
    source="mqcore",
    doc="Reput worker to broker process: bitmaps have the bits of those filters.",
    fields=(
        Field("request_id", "q", "from topic_filters"),
        Field("from_offset", "q", "of messages from this physical offset on; -1 = the filters could not be taken"),
    ),
)
OFFSET_MOVED = Layout(
    "offset_moved",
    size=24,
    place="shared",
    source="mqcore",
    doc="Pull worker to broker process, over the link: a pull asked out of range. Behind it: topic, group.",
    fields=(
        Field("requested", "q", "queue offset"),
        Field("corrected", "q", "queue offset"),
        Field("queue_id", "i", "the queue"),
        Field("topic_size", "h", "bytes"),
        Field("group_size", "h", "bytes"),
    ),
)
LATE_PULL = Layout(
    "late_pull",
    size=16,
    place="shared",
    source="mqcore",
    doc="Pull worker to broker process, over the link: reading what a pull found took a millisecond or more.",
    fields=(
        Field("offset_row", "i", "whose pull it was"),
        Field("spare", "i", "0"),
        Field("took_ms", "q", "how long the reading took, ms"),
    ),
)
ARRIVAL = Layout(
    "arrival",
    size=32,
    place="shared",
    source="mqcore",
    doc="Reput worker to pull worker: a message is readable in a queue that has waiters.",
    fields=(
        Field("queue_row", "i", "the queue"),
        Field("spare", "i", "0"),
        Field("max_offset", "q", "queue offset after the message"),
        Field("tags_code", "q", "of the message"),
        Field("store_timestamp", "q", "of the message, ms"),
    ),
)
LINK_HEAD = Layout(
    "link_head",
    size=16,
    place="shared",
    source="mqcore",
    doc="Between a worker and the broker process, over a socket pair: this head, then the payload.",
    fields=(
        Field("size", "i", "bytes that follow this head"),
        Field("kind", "i", "LinkKind"),
        Field("connection_id", "q", "which connection; 0 = none"),
    ),
)
REQUEST_HEAD = Layout(
    "request_head",
    size=16,
    place="shared",
    source="mqcore",
    doc="Start of the payload of LinkKind REQUEST; behind it the request's frame as it came, without its length.",
    fields=(
        Field("since", "q", "when it came, coarse ms"),
        Field("charged", "i", "1 = the quotas have been asked"),
        Field("spare", "i", "0"),
    ),
)
