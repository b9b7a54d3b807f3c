# What must hold, whoever else is killed and whatever comes over the wire. A check speaks of our own mistakes: what a
# peer, a disk or a user may get wrong is an error, and has its test in every build.
#
# check(holds, what): the debug build ends the process with *what* on its standard error when *holds* is false; the
# other one compiles to nothing, and *holds* is not evaluated. It must have no effect, and *what* be a literal.
cdef extern from "checks.h" nogil:
    void check "MQ_CHECK"(bint holds, const char *what)
    bint CHECKED "MQ_CHECKED"
