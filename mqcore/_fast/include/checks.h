/* What must hold, checked in the debug build (make debug-build) and compiled out of the other. */
#ifndef MQCORE_CHECKS_H
#define MQCORE_CHECKS_H

#ifdef MQ_DEBUG

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The process ends here: what would come next is built on something false. MQ_CHECK_LOG names a file that gets the line,
   too, as a supervisor starts a dead worker again and few read what it left behind. */
static inline void mq_check_failed(const char *what, const char *file, int line) {
    char text[512];
    const char *path = getenv("MQ_CHECK_LOG");
    int size = snprintf(text, sizeof text, "mqcore: does not hold: %s (%s:%d, process %d)\n", what, file, line, (int)getpid());
    int fd = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (size > (int)sizeof text - 1) size = (int)sizeof text - 1;
    if (write(2, text, size) < 0 || (fd >= 0 && write(fd, text, size) < 0)) {
        /* Nobody to tell; the signal says enough. */
    }
    abort();
}

#define MQ_CHECK(holds, what) ((holds) ? (void)0 : mq_check_failed(what, __FILE__, __LINE__))
enum { MQ_CHECKED = 1 };

#else

/* The operands are looked at by the compiler alone, so that they cannot rot. */
#define MQ_CHECK(holds, what) ((void)sizeof((holds) ? 1 : 0))
enum { MQ_CHECKED = 0 };

#endif
#endif
