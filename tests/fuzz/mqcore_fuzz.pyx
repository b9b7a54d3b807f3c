"""Plays inputs against kernels that read what a peer or a file says; part of the sanitized build alone.

A target is given bytes that lie in memory of exactly their size, so that AddressSanitizer sees a read behind them. It
says False when a promise of the kernel's contract (its .pxd) is broken: a view that leaves the input, a text that
grows, a record that is another one when it is written and read again.

A target may be a function of Python, too, which is given bytes and says the same: twins that must agree (twins.py).

Inputs are seeds that were changed at random. One that enters code where none was before becomes a seed itself.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memmove, memset

from mqcore._fast.base.buffers cimport Buffer, buffer_free, buffer_size
from mqcore._fast.base.utf8 cimport is_utf8
from mqcore._fast.columns.property_pairs cimport Pairs, pair_at, split_properties
from mqcore._fast.filter.numbers cimport compare_doubles, parse_double, parse_integer
from mqcore._fast.filter.program cimport FilterProgram, filter_cost, filter_free, filter_load, filter_run
from mqcore._fast.log.record cimport (DECODE_BAD_CRC, DECODE_OK, BatchMember, DecodeStatus, IndexedProperties,
                                      NewRecord, RecordView, decode_record, encode_record, find_indexed_properties,
                                      find_property, is_torn, java_hash, java_hash_continue, next_batch_member,
                                      record_size)
from mqcore._fast.log.timed cimport TextSpan, TimedProperties, find_timed, judge_timed, parse_long
from mqcore._fast.queues.dispatch cimport ListedQueues, next_listed, open_listed, tags_code_of
from mqcore._fast.queues.ext cimport ExtUnit, ext_units_end, read_ext_unit
from mqcore._fast.wire.header cimport (COMMAND_OK, FIELDS_MAX, UNESCAPE_ROOM, CommandView, TextView, field_of,
                                       scan_command, text_to_bool, text_to_i32, text_to_i64, text_unescape)
from mqcore._fast.wire.replies cimport Reply, put_escaped, reply_field, reply_put, reply_start

cdef extern from *:
    """
    extern uint32_t mqcore_fuzz_fresh;      /* coverage.c */
    """
    uint32_t fresh "mqcore_fuzz_fresh"

cdef enum:
    INPUT_MAX = 4096
    SEEDS_MAX = 16384
    CHANGES_MAX = 6
    ESCAPE_GROWTH = 6               # bytes of \u00e9 for one
    INPUTS_AT_ONCE = 1 << 16        # between two looks at signals

ctypedef bint (*Target)(const uint8_t *data, int32_t size) noexcept nogil

cdef int64_t[4] DELAY_LEVELS_MS = [1_000, 5_000, 10_000, 7_200_000]
cdef int64_t NOW_MS = 1_700_000_000_000
cdef int64_t MAX_DELAY_MS = 259_200_000


# ---------------------------------------------------------------------------------------------------------- targets

cdef bint lies_in(const uint8_t *at, int64_t count, const uint8_t *data, int64_t size) noexcept nogil:
    if count <= 0:
        return count == 0
    return data <= at and at <= data + size and count <= data + size - at


cdef bint text_holds(const TextView *text, const uint8_t *data, int32_t size) noexcept nogil:
    cdef uint8_t *room
    cdef int32_t capacity, written, small, index
    cdef int64_t number
    if text.at == NULL:
        return True
    if not lies_in(text.at, text.size, data, size):
        return False
    text_to_i64(text, &number)
    text_to_i32(text, &small)
    text_to_bool(text)
    for index in range(2):
        capacity = (text.size + UNESCAPE_ROOM) >> index
        room = <uint8_t *>malloc(capacity)
        written = text_unescape(text, room, capacity)
        free(room)
        if written > text.size or (index == 0 and not text.is_escaped and written != text.size):
            return False
    return True


cdef bint fuzz_command(const uint8_t *data, int32_t size) noexcept nogil:
    cdef CommandView view
    cdef int32_t index
    if scan_command(data, size, &view) != COMMAND_OK:
        return True
    if not text_holds(&view.remark, data, size) or not lies_in(view.body, view.body_size, data, size):
        return False
    if not 0 <= view.field_count <= FIELDS_MAX:
        return False
    for index in range(view.field_count):
        if not text_holds(&view.names[index], data, size) or not text_holds(&view.values[index], data, size):
            return False
    field_of(&view, "topic", 5)
    return True


cdef bint timed_holds(const TimedProperties *found, const uint8_t *data, int32_t size) noexcept nogil:
    cdef const TextSpan *spans = &found.delay_sec
    cdef int64_t number
    cdef size_t index
    for index in range(sizeof(TimedProperties) // sizeof(TextSpan)):
        if not lies_in(spans[index].at, spans[index].size, data, size):
            return False
        if spans[index].size > 0:
            parse_long(&spans[index], &number)
    judge_timed(found, NOW_MS, MAX_DELAY_MS, &number)
    return True


cdef bint pairs_hold(const uint8_t *data, int32_t size) noexcept nogil:
    cdef Pairs pairs
    cdef Py_ssize_t index
    cdef bint holds = True
    memset(&pairs, 0, sizeof(pairs))
    if split_properties(&pairs, data, size):
        for index in range(pairs.count):
            holds = holds and lies_in(pair_at(&pairs, index).name, pair_at(&pairs, index).name_size, data, size)
            holds = holds and lies_in(pair_at(&pairs, index).value, pair_at(&pairs, index).value_size, data, size)
    free(pairs.memory.data)
    return holds


cdef bint fuzz_properties(const uint8_t *data, int32_t size) noexcept nogil:
    cdef IndexedProperties indexed
    cdef TimedProperties timed
    cdef const uint8_t *value
    cdef int32_t value_size
    find_indexed_properties(data, size, &indexed)
    if not (lies_in(indexed.tags, indexed.tags_size, data, size)
            and lies_in(indexed.keys, indexed.keys_size, data, size)
            and lies_in(indexed.unique_key, indexed.unique_key_size, data, size)
            and lies_in(indexed.delay, indexed.delay_size, data, size)):
        return False
    if find_property(data, size, "TAGS", 4, &value, &value_size):
        # Both read the same text, and must find the same.
        if value != indexed.tags or value_size != indexed.tags_size:
            return False
    elif indexed.tags_size != 0:
        return False
    find_timed(data, size, &timed)
    return timed_holds(&timed, data, size) and pairs_hold(data, size)


cdef bint written_again(const RecordView *view) noexcept nogil:
    # What was read, written: it must be read as the same.
    cdef NewRecord record
    cdef RecordView again
    cdef uint8_t *room
    cdef int32_t size
    cdef bint holds
    memset(&record, 0, sizeof(record))
    record.body_crc = view.body_crc
    record.queue_id = view.queue_id
    record.flag = view.flag
    record.queue_offset = view.queue_offset
    record.physical_offset = view.physical_offset
    record.sys_flag = view.sys_flag
    record.born_timestamp = view.born_timestamp
    record.born_host = view.born_host
    record.store_timestamp = view.store_timestamp
    record.store_host = view.store_host
    record.reconsume_times = view.reconsume_times
    record.prepared_transaction_offset = view.prepared_transaction_offset
    record.body_size = view.body_size
    record.body = view.body
    record.topic_size = view.topic_size
    record.topic = view.topic
    record.properties_size = view.properties_size
    record.properties = view.properties
    size = record_size(&record)
    if size < 0:                            # beyond what may be written today
        return True
    room = <uint8_t *>calloc(1, size)
    encode_record(room, &record)
    holds = decode_record(room, size, False, &again) == DECODE_OK and again.total_size == size
    holds = holds and again.body_size == view.body_size and again.topic_size == view.topic_size
    holds = holds and again.properties_size == view.properties_size and again.sys_flag == view.sys_flag
    holds = holds and (view.body_size == 0 or memcmp(again.body, view.body, view.body_size) == 0)
    holds = holds and (view.topic_size == 0 or memcmp(again.topic, view.topic, view.topic_size) == 0)
    free(room)
    return holds


cdef bint listed_hold(const RecordView *view, const uint8_t *data, int32_t size) noexcept nogil:
    cdef ListedQueues listed
    cdef bint is_odd = False
    cdef int32_t count = 0
    if not open_listed(view, &listed, &is_odd):
        return True
    while next_listed(&listed):
        count += 1
        if count > size or not lies_in(listed.topic, listed.topic_size, data, size):
            return False
    return True


cdef bint fuzz_record(const uint8_t *data, int32_t size) noexcept nogil:
    cdef RecordView view
    cdef IndexedProperties indexed
    cdef DecodeStatus checked = decode_record(data, size, True, &view)
    cdef DecodeStatus status = decode_record(data, size, False, &view)
    if status != DECODE_OK:
        return checked == status
    if checked != DECODE_OK and checked != DECODE_BAD_CRC:
        return False
    if not 0 < view.total_size <= size:
        return False
    if not (lies_in(view.body, view.body_size, data, size) and lies_in(view.topic, view.topic_size, data, size)
            and lies_in(view.properties, view.properties_size, data, size)
            and lies_in(view.born_host.address, view.born_host.address_size, data, size)
            and lies_in(view.store_host.address, view.store_host.address_size, data, size)):
        return False
    is_torn(data, &view)
    find_indexed_properties(view.properties, view.properties_size, &indexed)
    tags_code_of(&view, &indexed, DELAY_LEVELS_MS, 4)
    if not listed_hold(&view, data, size) or not fuzz_properties(view.properties, view.properties_size):
        return False
    return written_again(&view)


cdef bint fuzz_batch(const uint8_t *data, int32_t size) noexcept nogil:
    cdef BatchMember member
    cdef int32_t at = 0
    while at < size:
        if next_batch_member(data + at, size - at, &member) != DECODE_OK:
            return True
        if not 0 < member.total_size <= size - at:
            return False
        if not lies_in(member.body, member.body_size, data + at, member.total_size):
            return False
        if not lies_in(member.properties, member.properties_size, data + at, member.total_size):
            return False
        at += member.total_size
    return True


cdef bint fuzz_ext(const uint8_t *data, int32_t size) noexcept nogil:
    cdef ExtUnit unit
    cdef int64_t end = ext_units_end(data, size)
    if not 0 <= end <= size:
        return False
    if not read_ext_unit(data, size, &unit):
        return True
    return 0 < unit.size <= size and lies_in(unit.bitmap, unit.bitmap_size, data, size)


cdef bint fuzz_numbers(const uint8_t *data, int32_t size) noexcept nogil:
    cdef int64_t number, small
    cdef double real
    cdef TextView text
    cdef int64_t read
    text.at = data
    text.size = size
    text.is_escaped = False
    if parse_integer(data, size, (<int64_t>1 << 31) - 1, &small):
        # What is an int is the same long, to each of those who read longs.
        if not parse_integer(data, size, <int64_t>((<uint64_t>1 << 63) - 1), &number) or number != small:
            return False
        # The scanner's leaves texts with so many zeros in front, and digits of other scripts, to the Python reader.
        if text_to_i64(&text, &read) and read != small:
            return False
    if parse_double(data, size, &real):
        return compare_doubles(real, real) == 0
    return True


cdef bint fuzz_filter(const uint8_t *data, int32_t size) noexcept nogil:
    # A program behind its length in two bytes, then the properties that it is run over.
    cdef FilterProgram program
    cdef int32_t program_size
    cdef uint8_t *code
    if size < 2:
        return True
    program_size = min(data[0] << 8 | data[1], size - 2)
    code = <uint8_t *>malloc(program_size)
    memcpy(code, data + 2, program_size)
    memset(&program, 0, sizeof(program))
    if filter_load(&program, code, program_size):
        filter_run(&program, data + 2 + program_size, size - 2 - program_size)
        filter_cost(&program, size)
        filter_free(&program)
    free(code)
    return True


cdef bint fuzz_text(const uint8_t *data, int32_t size) noexcept nogil:
    # Escaped into a text of JSON and back.
    cdef uint8_t *escaped = <uint8_t *>malloc(ESCAPE_GROWTH * size)
    cdef int64_t growth = put_escaped(escaped, data, size) - escaped
    cdef TextView text
    cdef uint8_t *back
    cdef int32_t written
    cdef bint holds = 0 <= growth <= ESCAPE_GROWTH * size
    java_hash_continue(java_hash(data, size), data, size)
    if holds and is_utf8(data, size):
        text.at = escaped
        text.size = <int32_t>growth
        text.is_escaped = True
        back = <uint8_t *>malloc(growth + UNESCAPE_ROOM)
        written = text_unescape(&text, back, <int32_t>growth + UNESCAPE_ROOM)
        holds = written == size and (size == 0 or memcmp(back, data, size) == 0)
        free(back)
    free(escaped)
    return holds


cdef bint fuzz_reply(const uint8_t *data, int32_t size) noexcept nogil:
    # A reply with these bytes as the value of a field, read as a request is.
    cdef Reply reply
    cdef Buffer buffer
    cdef CommandView view
    cdef TextView text
    cdef const uint8_t *frame
    cdef uint8_t *back
    cdef bint holds = True
    if size < 2 or not is_utf8(data + 1, size - 1):
        return True
    memset(&buffer, 0, sizeof(buffer))
    reply_start(&reply, data[0] & 1, 0, 7)
    reply_field(&reply, "msgId", data + 1, size - 1)
    if reply_put(&reply, &buffer, 0):
        frame = buffer.data + buffer.start + 4
        holds = scan_command(frame, <int32_t>buffer_size(&buffer) - 4, &view) == COMMAND_OK
        if holds:
            text = field_of(&view, "msgId", 5)
            back = <uint8_t *>malloc(text.size + UNESCAPE_ROOM)
            holds = text.at != NULL and text_unescape(&text, back, text.size + UNESCAPE_ROOM) == size - 1
            holds = holds and memcmp(back, data + 1, size - 1) == 0
            free(back)
    buffer_free(&buffer)
    return holds


cdef extern from *:
    """
    /* Or a compiler that sees that nobody uses what was read would leave the reads out. */
    static volatile unsigned char planted_sum;
    """
    uint8_t planted_sum


cdef bint planted_read(const uint8_t *data, int32_t size) noexcept nogil:
    # A defect, for the test that one is found: it reads behind what says that it is longer than it is.
    global planted_sum
    cdef uint8_t sum = 0
    cdef int32_t at
    if size > 2 and data[0] == c"m" and data[1] == c"q":
        for at in range(data[2]):
            sum ^= data[3 + at]
    planted_sum = sum
    return True


cdef bint planted_lie(const uint8_t *data, int32_t size) noexcept nogil:
    return not (size > 3 and data[0] == c"m" and data[1] == c"q" and data[2] == 0 and data[3] > 200)


cdef struct Named:
    const char *name
    Target target


cdef Named[12] TARGETS = [
    Named(b"command", fuzz_command), Named(b"record", fuzz_record), Named(b"properties", fuzz_properties),
    Named(b"batch", fuzz_batch), Named(b"ext", fuzz_ext), Named(b"numbers", fuzz_numbers),
    Named(b"filter", fuzz_filter), Named(b"text", fuzz_text), Named(b"reply", fuzz_reply),
    Named(b"planted_read", planted_read), Named(b"planted_lie", planted_lie), Named(NULL, NULL),
]


cdef Target target_of(bytes name) except NULL:
    cdef int index = 0
    while TARGETS[index].name != NULL:
        if TARGETS[index].name == name:
            return TARGETS[index].target
        index += 1
    raise KeyError(f"no such target: got {name.decode()!r}, wanted one of {', '.join(target_names())}")


def target_names():
    """The names of all targets."""
    names = []
    cdef int index = 0
    while TARGETS[index].name != NULL:
        names.append(TARGETS[index].name.decode())
        index += 1
    return names


# ----------------------------------------------------------------------------------------------------------- playing

cdef struct Seed:
    uint8_t *data
    int32_t size


cdef uint8_t[12] ODD_BYTES = [0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF, c'"', c"\\", c"{", c",", c"-", c"9"]
cdef int64_t[10] ODD_NUMBERS = [0, 1, -1, 127, 128, 32767, 32768, 2147483647, -2147483648, 0x7FFFFFFFFFFFFFFF]


cdef class Player:
    """Plays inputs against one target. *note* is memory that outlives the process: there stands the input at hand."""

    cdef Target target              # NULL: *call* is asked
    cdef object call
    cdef readonly object error      # what *call* has raised
    cdef Seed seeds[SEEDS_MAX]
    cdef readonly int seed_count
    cdef uint64_t chance
    cdef const uint8_t[::1] note
    cdef uint8_t *noted

    def __cinit__(self, target not None, seeds not None, uint64_t chance, uint8_t[::1] note not None):
        if note.shape[0] < INPUT_MAX + 4:
            raise ValueError(f"the note is too small: got {note.shape[0]} bytes, wanted {INPUT_MAX + 4}")
        if isinstance(target, str):
            self.target = target_of(target.encode())
        else:
            self.call = target
        self.chance = chance * 2 + 1
        self.note = note
        self.noted = &note[0]
        for seed in seeds:
            self.keep(seed, min(len(seed), INPUT_MAX))
        if self.seed_count == 0:
            self.keep(b"", 0)

    def __dealloc__(self):
        cdef int index
        for index in range(self.seed_count):
            free(self.seeds[index].data)

    cdef bint keep(self, const uint8_t *data, int32_t size) noexcept nogil:
        cdef uint8_t *copy
        if self.seed_count == SEEDS_MAX:
            return False
        copy = <uint8_t *>malloc(size + 1)
        memcpy(copy, data, size)
        self.seeds[self.seed_count].data = copy
        self.seeds[self.seed_count].size = size
        self.seed_count += 1
        return True

    cdef uint32_t draw(self, uint32_t below) noexcept nogil:
        # splitmix64; *below* is small beside 2**32, so that the remainder's slant does not matter.
        cdef uint64_t z
        self.chance += <uint64_t>0x9E3779B97F4A7C15
        z = self.chance
        z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
        return <uint32_t>((z ^ (z >> 31)) >> 32) % below

    cdef void put_number(self, uint8_t *at, int32_t size) noexcept nogil:
        cdef int32_t width = 1 << self.draw(4)
        cdef int64_t number
        cdef int32_t place, index
        if width > size:
            return
        place = self.draw(size - width + 1)
        if self.draw(2):
            number = ODD_NUMBERS[self.draw(10)]
        else:
            number = 0
            for index in range(width):
                number = <int64_t>(<uint64_t>number << 8 | at[place + index])
            number += <int64_t>self.draw(33) - 16
        for index in range(width):
            at[place + width - 1 - index] = <uint8_t>(<uint64_t>number >> (8 * index))

    cdef int32_t splice(self, uint8_t *at, int32_t size) noexcept nogil:
        cdef const Seed *other = &self.seeds[self.draw(self.seed_count)]
        cdef int32_t place = self.draw(size + 1)
        cdef int32_t start = self.draw(other.size + 1)
        cdef int32_t count = min(other.size - start, INPUT_MAX - place)
        memcpy(at + place, other.data + start, count)
        return place + count

    cdef int32_t change(self, uint8_t *at, int32_t size) noexcept nogil:
        # One change; the new size.
        cdef uint32_t what = self.draw(9)
        cdef int32_t place, count
        if what == 0 or size == 0:
            return self.splice(at, size)
        place = self.draw(size)
        count = min(<int32_t>self.draw(16) + 1, size - place)
        if what == 1:
            at[place] ^= 1 << self.draw(8)
        elif what == 2:
            at[place] = self.draw(256)
        elif what == 3:
            at[place] = ODD_BYTES[self.draw(12)]
        elif what == 4:
            self.put_number(at, size)
        elif what == 5:
            return place
        elif what == 6:
            memmove(at + place, at + place + count, size - place - count)
            return size - count
        elif size + count <= INPUT_MAX:     # said twice, or a gap that has what lay there
            memmove(at + place + count, at + place, size - place)
            return size + count
        return size

    cdef bint ask(self, const uint8_t *data, int32_t size) noexcept with gil:
        try:
            return bool(self.call(PyBytes_FromStringAndSize(<const char *>data, size)))
        except Exception as error:
            self.error = error
            return False

    cdef bint try_input(self, const uint8_t *data, int32_t size) noexcept nogil:
        cdef uint8_t *exact
        cdef bint holds
        memcpy(self.noted, &size, 4)
        memcpy(self.noted + 4, data, size)
        if self.target == NULL:
            return self.ask(data, size)
        exact = <uint8_t *>malloc(size)
        memcpy(exact, data, size)
        holds = self.target(exact, size)
        free(exact)
        return holds

    cdef int64_t play_some(self, int64_t count) noexcept nogil:
        # The number of inputs that held before one did not; count if all did.
        cdef uint8_t[INPUT_MAX] scratch
        cdef const Seed *seed
        cdef int32_t size
        cdef uint32_t before
        cdef int64_t number
        cdef uint32_t left
        for number in range(count):
            seed = &self.seeds[self.draw(self.seed_count)]
            size = seed.size
            memcpy(scratch, seed.data, size)
            left = 1 + self.draw(CHANGES_MAX)
            while left > 0:
                size = self.change(scratch, size)
                left -= 1
            before = fresh
            if not self.try_input(scratch, size):
                return number
            if fresh != before:
                self.keep(scratch, size)
        return count

    def play(self, int64_t count):
        """Play *count* inputs. Raises AssertionError when one breaks a promise; a bad address ends the process."""
        cdef int64_t some, held
        cdef int index
        for index in range(self.seed_count):
            if not self.try_input(self.seeds[index].data, self.seeds[index].size):
                raise AssertionError("a promise is broken by a seed") from self.error
        while count > 0:
            some = min(count, <int64_t>INPUTS_AT_ONCE)
            with nogil:
                held = self.play_some(some)
            if held < some:
                raise AssertionError("a promise is broken") from self.error
            count -= some

    def try_one(self, const uint8_t[::1] data):
        """Whether *data* holds, which may be a crash that was found before."""
        cdef const uint8_t *at = &data[0] if data.shape[0] > 0 else NULL
        return self.try_input(at, <int32_t>min(data.shape[0], <Py_ssize_t>INPUT_MAX))
