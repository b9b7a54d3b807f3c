"""What topics, groups and clients use of their quotas, in rows that all workers share."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from mqcore._fast.base.atomics cimport claim_full, coarse_ms, peek
from mqcore._fast.base.layout cimport QUOTA_PROBES, QUOTA_ROWS, QUOTA_RULES_MAX, QuotaRow
from mqcore._fast.segment.boards cimport Shared, SharedSegment

cdef enum:
    PLACES = 4 * QUOTA_RULES_MAX
    NS_PER_SECOND = 1_000_000_000
    NS_PER_MS = 1_000_000

OTHERS = b"*"


cdef QuotaRule *place_of(const QuotaBook *book, int64_t key) noexcept nogil:
    # Where the rule of *key* stands, or would.
    cdef int64_t at = (key >> 1) & book.mask
    while book.rules[at].key != 0 and book.rules[at].key != key:
        at = (at + 1) & book.mask
    return &book.rules[at]


cdef void put_rule(QuotaBook *book, int64_t key, int64_t messages, int64_t size) noexcept nogil:
    cdef QuotaRule *rule = place_of(book, key)
    rule.key = key
    rule.messages = messages
    rule.bytes = size


cdef bint quota_take_rules(QuotaBook *book, QuotaDirection direction, object rules) except -1:
    """Go by *rules*, of (direction, kind, name, messages, bytes); False, and nothing changed, when memory is short."""
    cdef QuotaRule *places = <QuotaRule *>calloc(PLACES, sizeof(QuotaRule))
    cdef QuotaBook made
    cdef bytes name
    cdef int kind
    if places == NULL:
        return False
    if len(rules) > QUOTA_RULES_MAX:
        free(places)
        raise ValueError(f"quotas: got {len(rules)} entries, wanted at most {<int>QUOTA_RULES_MAX}")
    made.direction = direction
    made.has_any = made.counts_messages = False
    made.rules = places
    made.mask = <int>PLACES - 1
    for kind in range(<int>QUOTA_KINDS):
        made.has_kind[kind] = False
        made.others[kind].messages = made.others[kind].bytes = 0
    for number, kind, name, messages, size in rules:
        if number != <int>direction:
            continue
        made.has_any = made.has_kind[kind] = True
        made.counts_messages = made.counts_messages or messages > 0
        if name == OTHERS:
            made.others[kind].messages = messages
            made.others[kind].bytes = size
        else:
            put_rule(&made, quota_key(direction, <QuotaKind>kind, name, len(name)), messages, size)
    quota_free(book)
    book[0] = made
    return True


cdef void quota_free(QuotaBook *book) noexcept nogil:
    free(book.rules)
    book.rules = NULL


cdef void quota_draw_on(const QuotaBook *book, QuotaKind kind, int64_t key, QuotaDraw *draw) noexcept nogil:
    cdef const QuotaRule *rule = place_of(book, key)
    if rule.key == 0:
        rule = &book.others[<int>kind]
    if rule.messages > 0 or rule.bytes > 0:
        draw.keys[draw.count] = key
        draw.kinds[draw.count] = kind
        draw.rules[draw.count] = rule
        draw.count += 1


cdef QuotaRow *row_of(Shared *shared, int64_t key, int64_t now_ns) noexcept nogil:
    # A row whose times have passed is one that nobody draws on: whose it was, starts anew in any row.
    cdef QuotaRow *row
    cdef int64_t holder
    cdef int probe
    for probe in range(QUOTA_PROBES):
        row = &shared.quotas[((key >> 1) + probe) & (QUOTA_ROWS - 1)]
        if peek(&row.key) == key:
            return row
    for probe in range(QUOTA_PROBES):
        row = &shared.quotas[((key >> 1) + probe) & (QUOTA_ROWS - 1)]
        holder = peek(&row.key)
        if holder != 0 and (peek(&row.messages_until) > now_ns or peek(&row.bytes_until) > now_ns):
            continue
        if claim_full(&row.key, holder, key) or peek(&row.key) == key:
            return row
    # All are in use: it shares one.
    return &shared.quotas[(key >> 1) & (QUOTA_ROWS - 1)]


cdef int64_t quota_wait_ns(Shared *shared, QuotaDraw *draw, int64_t now_ns) noexcept nogil:
    cdef const QuotaRow *row
    cdef int64_t until
    cdef int64_t latest = 0
    cdef int32_t index
    for index in range(draw.count):
        row = row_of(shared, draw.keys[index], now_ns)
        until = peek(&row.messages_until) if draw.rules[index].messages > 0 else 0
        if draw.rules[index].bytes > 0:
            until = max(until, peek(&row.bytes_until))
        if until > latest:
            latest = until
            draw.slowest = draw.kinds[index]
    return max(<int64_t>0, latest - now_ns - <int64_t>QUOTA_BURST_NS)


cdef void move_on(int64_t *until, int64_t cost_ns, int64_t now_ns) noexcept nogil:
    cdef int64_t before
    while True:
        before = peek(until)
        if claim_full(until, before, max(before, now_ns) + cost_ns):
            return


cdef void quota_charge(Shared *shared, const QuotaDraw *draw, int64_t messages, int64_t size,
                       int64_t now_ns) noexcept nogil:
    cdef QuotaRow *row
    cdef const QuotaRule *rule
    cdef int32_t index
    for index in range(draw.count):
        row = row_of(shared, draw.keys[index], now_ns)
        rule = draw.rules[index]
        if rule.messages > 0:
            move_on(&row.messages_until, messages * <int64_t>NS_PER_SECOND // rule.messages, now_ns)
        if rule.bytes > 0:
            # Fewer than 2**33 bytes, so that this fits.
            move_on(&row.bytes_until, size * <int64_t>NS_PER_SECOND // rule.bytes, now_ns)


cdef class Quotas:
    """The same for who draws from Python: *rules* as in ``quota_take_rules``, of both directions."""

    cdef SharedSegment segment
    cdef QuotaBook books[2]

    def __init__(self, SharedSegment segment not None, rules):
        self.segment = segment
        self.use(rules)

    def use(self, rules):
        """Go by other rules. What was drawn stays."""
        cdef int direction
        for direction in range(2):
            if not quota_take_rules(&self.books[direction], <QuotaDirection>direction, rules):
                raise MemoryError()

    def __dealloc__(self):
        quota_free(&self.books[0])
        quota_free(&self.books[1])

    cdef draw(self, int direction, bytes topic, bytes group, bytes client, QuotaDraw *out):
        cdef QuotaBook *book = &self.books[direction]
        cdef int kind
        out.count = 0
        for kind, name in enumerate((topic, group, client)):
            if book.has_kind[kind]:
                quota_draw_on(book, <QuotaKind>kind,
                              quota_key(<QuotaDirection>direction, <QuotaKind>kind, <bytes>name, len(name)), out)

    def has_any(self, int direction):
        """Whether anybody is limited in that direction."""
        return bool(self.books[direction].has_any)

    def wait_ms(self, int direction, bytes topic not None, bytes group not None, bytes client not None):
        """Return how long a request must wait before it may go, ms; *client* is its address, packed."""
        cdef QuotaDraw draw
        self.draw(direction, topic, group, client, &draw)
        return -(-quota_wait_ns(&self.segment.shared, &draw, coarse_ms() * <int64_t>NS_PER_MS) // <int64_t>NS_PER_MS)

    def charge(self, int direction, bytes topic not None, bytes group not None, bytes client not None,
               int64_t messages, int64_t size):
        """Count what was let through."""
        cdef QuotaDraw draw
        self.draw(direction, topic, group, client, &draw)
        quota_charge(&self.segment.shared, &draw, messages, size, coarse_ms() * <int64_t>NS_PER_MS)
