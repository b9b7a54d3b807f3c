"""What threads take from to call plain handlers; the readable twin is mqcore.client.consume.push.line.

There a lock makes each step whole. Here a step is whole as no Python code runs in it: between a look and what depends
on it nothing is called that another thread could run in. The load ``receive_handler`` of benchmarks.client measures it.
"""

from collections import deque

from cpython.contextvars cimport PyContextVar_Set
from cpython.list cimport PyList_GetSlice
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from mqcore._fast.client.records cimport RecordFields

from mqcore.client.errors import ClientStateError
from mqcore.client.model.outcome import Done
from mqcore.client.session.inside import CALL, HandlerCall


cdef inline double now_s(int which) noexcept nogil:
    cdef timespec now
    clock_gettime(which, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef class HandlerStretch:
    """Messages of one queue in line; see the twin."""

    cdef readonly object held
    cdef list messages
    cdef list done
    cdef list times_ms
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t taken
    cdef public Py_ssize_t back
    cdef Py_ssize_t passed
    cdef bint is_odd
    cdef bint is_noted

    def __init__(self, held, messages, *, bint is_odd=False):
        self.held = held
        self.messages = list(messages)
        self.is_odd = is_odd
        self.count = len(messages)
        self.taken = self.back = self.passed = 0
        self.done = []
        self.times_ms = []
        self.is_noted = False

    @property
    def in_hand(self):
        return self.taken - self.back


cdef class HandlerLine:
    """Calls a function for what is put in, in order, in threads; see the twin."""

    cdef object function
    cdef Py_ssize_t size
    cdef Py_ssize_t limit
    cdef object membership
    cdef object start_thread
    cdef object tell
    cdef object other
    cdef object failed
    cdef object line
    cdef list noted
    cdef readonly Py_ssize_t alive
    cdef bint is_starting
    cdef bint is_halted
    cdef bint is_told

    def __init__(self, function, Py_ssize_t size, Py_ssize_t limit, membership, *, start, tell, other, failed):
        self.function = function
        self.size = size
        self.limit = limit
        self.membership = membership
        self.start_thread = start
        self.tell = tell
        self.other = other
        self.failed = failed
        self.line = deque()
        self.noted = []
        self.alive = 0
        self.is_starting = self.is_halted = self.is_told = False

    def put(self, HandlerStretch stretch not None):
        """Put *stretch* in line; see the twin."""
        if not self.is_halted:
            self.line.append(stretch)
            self.see_to_start()

    def start(self):
        """See to it that what waits is taken, as ``put`` does."""
        self.see_to_start()

    def set_limit(self, Py_ssize_t limit):
        """Let *limit* calls run at once from now on. Those under way end as they would have."""
        self.limit = limit
        self.see_to_start()

    def halt(self):
        """Take nothing more, and return how many messages nobody has taken; calls under way go on."""
        cdef HandlerStretch stretch
        cdef Py_ssize_t left = 0
        self.is_halted = True
        line, self.line = self.line, deque()
        for stretch in line:
            left += stretch.count - stretch.taken
        return left

    def after_fork(self):
        """In a forked child: what stands in line is the parent's."""
        self.line.clear()

    def collect(self):
        """Return what is done since the last time; see the twin."""
        cdef HandlerStretch stretch
        cdef list noted = self.noted
        cdef list found = []
        self.is_told = False
        self.noted = []
        for stretch in noted:
            # Before the step: to make an object may collect garbage, and so run Python code.
            done, times_ms = [], []
            done, stretch.done = stretch.done, done
            times_ms, stretch.times_ms = stretch.times_ms, times_ms
            passed, stretch.passed = stretch.passed, 0
            stretch.is_noted = False
            found.append((stretch, done, times_ms, passed))
        return found

    cdef int see_to_start(self) except -1:
        if self.is_starting or self.alive >= self.limit or self.first() is None:
            return 0
        self.is_starting = True
        self.alive += 1
        try:
            self.start_thread(self.live)
        except RuntimeError:
            self.is_starting = False
            self.alive -= 1
            if not self.alive:
                raise  # else those that live take what there is
        return 0

    cdef HandlerStretch first(self):
        cdef HandlerStretch stretch
        while self.line:
            stretch = self.line[0]
            if stretch.taken < stretch.count:
                return stretch
            self.line.popleft()
        return None

    def live(self):
        """What each thread runs: take and call until there is nothing left, or there are more threads than wanted."""
        cdef HandlerStretch stretch
        cdef Py_ssize_t begin, end
        self.is_starting = False
        while True:
            stretch = self.first()
            if stretch is None or self.alive > self.limit:
                self.alive -= 1
                PyContextVar_Set(CALL, None)
                return
            begin = stretch.taken
            end = min(begin + max(self.size, 1), stretch.count)
            stretch.taken = end
            try:
                if not self.is_starting and self.alive < self.limit:
                    self.see_to_start()
                if stretch.held.dropped:
                    stretch.passed += end - begin
                    self.note(stretch)
                else:
                    self.call(stretch, begin, end)
            except ClientStateError:  # the loop has ended, and nobody wants to know
                self.halt()
            except Exception as error:  # a thread that ended here would be counted for ever
                self.failed(error)

    cdef int call(self, HandlerStretch stretch, Py_ssize_t begin, Py_ssize_t end) except -1:
        cdef double began_s, time_ms
        cdef list messages = None
        message = None
        raised = result = None
        call = HandlerCall(self.membership)
        PyContextVar_Set(CALL, call)
        if self.size == 0:
            message = stretch.messages[begin]
            mark(message, now_s(CLOCK_REALTIME))
        else:
            messages = PyList_GetSlice(stretch.messages, begin, end)
            for message in messages:
                mark(message, now_s(CLOCK_REALTIME))
        began_s = now_s(CLOCK_MONOTONIC)
        try:
            result = self.function(message if messages is None else messages)
        except BaseException as error:  # SystemExit too: a handler does not end the program's other threads
            raised = error
        time_ms = (now_s(CLOCK_MONOTONIC) - began_s) * 1000
        call.is_over = True
        if raised is None and not stretch.is_odd and (result is None or not isinstance(result, Done)):
            if messages is None:
                stretch.done.append(message)
            else:
                stretch.done.extend(messages)
            stretch.times_ms.append(time_ms)
            self.note(stretch)
        else:
            self.other(stretch, [message] if messages is None else messages, result, raised, time_ms)
        return 0

    cdef int note(self, HandlerStretch stretch) except -1:
        if not stretch.is_noted:
            stretch.is_noted = True
            self.noted.append(stretch)
        if not self.is_told:
            self.is_told = True
            try:
                self.tell()
            except BaseException:
                self.is_told = False
                raise
        return 0


cdef int mark(object message, double at_s) except -1:
    if isinstance(message, RecordFields):
        (<RecordFields>message).consume_started_s = at_s
    else:
        message.consume_started_s = at_s
    return 0
