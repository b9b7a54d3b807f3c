"""What a worker process asks of the system for itself."""

from libc.errno cimport errno
from libc.signal cimport SIGKILL
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf

from mqcore._fast.base.checks cimport CHECKED

import os

cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, ...)
    int PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER

cdef extern from "<signal.h>" nogil:
    ctypedef struct siginfo_t:
        int si_code
        void *si_addr
    struct sigaction_type "sigaction":
        void (*sa_sigaction)(int, siginfo_t *, void *) noexcept nogil
        int sa_flags
    int sigaction(int number, const sigaction_type *new, sigaction_type *old)
    int SA_SIGINFO, SIGBUS

cdef extern from "<string.h>" nogil:
    void *memset(void *at, int value, size_t size)
    void *memcpy(void *to, const void *source, size_t size)

cdef extern from "<sched.h>" nogil:
    int SCHED_OTHER

cdef extern from "<sys/syscall.h>" nogil:
    long SYS_sched_getattr, SYS_sched_setattr

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void *data, size_t size)
    void _exit(int status)
    long syscall(long number, ...)

# What sched_setattr(2) is told, in its first version; glibc has no name for it before 2.41.
cdef struct Scheduling:
    uint32_t size
    uint32_t policy
    uint64_t flags
    int32_t nice
    uint32_t priority
    uint64_t runtime                # of SCHED_OTHER: the slice, since Linux 6.12
    uint64_t deadline
    uint64_t period

# Of those whom a client waits for.
SHORT_SLICE_NS = 200_000

cdef enum:
    SIGBUS_STATUS = 135             # 128 + SIGBUS, as a shell says it


cdef void on_sigbus(int number, siginfo_t *info, void *context) noexcept nogil:
    # A mapped file is shorter than its mapping, or the disk failed under it. The supervisor sees the status.
    cdef char text[160]
    cdef int size = snprintf(
        text, sizeof(text), "mqcore: SIGBUS at %p (code %d): a mapped store file was cut short or cannot be read\n",
        info.si_addr, info.si_code)
    if write(2, text, size) < 0:
        pass
    _exit(SIGBUS_STATUS)


def die_with_parent(int parent_pid):
    """Have the kernel kill this process when its parent's main thread ends; ends at once if that has happened."""
    if prctl(PR_SET_PDEATHSIG, <unsigned long>SIGKILL) != 0:
        raise OSError(errno, os.strerror(errno))
    if os.getppid() != parent_pid:
        _exit(0)


def name_process(str name not None):
    """Show *name* (15 bytes) in ps and top instead of python."""
    encoded = name.encode()[:15]
    prctl(PR_SET_NAME, <const char *><bytes>encoded)


def show_command(list words not None):
    """Show *words* as the command of this process, in place of that of the process that it is a fork of.

    They are cut to the room that the old ones took. Nothing happens where the kernel does not say where those lie.
    """
    cdef char *start
    cdef Py_ssize_t room
    with open("/proc/self/stat") as stat:
        # proc(5): fields 48 and 49 are where the arguments begin and end; the name, in brackets, may have blanks.
        fields = stat.read().rpartition(")")[2].split()
    if len(fields) < 47 or int(fields[45]) >= int(fields[46]):
        return
    start = <char *><size_t>int(fields[45])
    room = int(fields[46]) - int(fields[45])
    shown = b"".join(word.encode() + b"\0" for word in words)[:room - 1]
    memset(start, 0, <size_t>room)
    memcpy(start, <const char *><bytes>shown, <size_t>len(shown))


def adopt_orphans():
    """Be the parent of all descendants from now on whose own parents end."""
    if prctl(PR_SET_CHILD_SUBREAPER, <unsigned long>1) != 0:
        raise OSError(errno, os.strerror(errno))


def ask_for_short_slices(int64_t slice_ns=SHORT_SLICE_NS):
    """Ask the scheduler for turns of *slice_ns* for this thread, and for those that it starts from now on.

    Others with long ones give way when it wakes: clients wait for it, and others can wait for a turn of its.
    Nobody gets more of a processor by it. Returns the slice that holds, ns; 0 where the kernel knows none, or says no,
    and where whoever started this process has chosen another policy, which is left alone.
    """
    cdef Scheduling scheduling
    memset(&scheduling, 0, sizeof(scheduling))
    if syscall(SYS_sched_getattr, <long>0, &scheduling, <long>sizeof(scheduling), <long>0) != 0:
        return 0
    if <int>scheduling.policy != SCHED_OTHER:
        return 0
    scheduling.runtime = slice_ns
    if syscall(SYS_sched_setattr, <long>0, &scheduling, <long>0) != 0:
        return 0
    if syscall(SYS_sched_getattr, <long>0, &scheduling, <long>sizeof(scheduling), <long>0) != 0:
        return 0
    return scheduling.runtime


def end_on_sigbus():
    """Say what a SIGBUS means, and exit with its status, instead of dying without a word."""
    cdef sigaction_type action
    memset(&action, 0, sizeof(action))
    action.sa_sigaction = on_sigbus
    action.sa_flags = SA_SIGINFO
    if sigaction(SIGBUS, &action, NULL) != 0:
        raise OSError(errno, os.strerror(errno))


def is_checked():
    """Whether this is the debug build, which ends a process in which something does not hold that must."""
    return bool(CHECKED)
