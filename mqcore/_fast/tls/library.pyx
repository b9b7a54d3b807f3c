"""OpenSSL, opened by name: that of Python's own ssl module, or the system's where that has it built in.

One library serves both, so that a fix of it is a fix of both. It is not loaded before TLS is needed.
"""

import importlib.util
import os

from mqcore.errors import TlsUnavailableError

cdef extern from "openssl_table.h" nogil:
    const char *openssl_fill(OpensslTable *table, void *library)

cdef extern from "<dlfcn.h>" nogil:
    void *dlopen(const char *path, int flags)
    const char *dlerror()
    int RTLD_NOW, RTLD_LOCAL

SYSTEM_NAMES = ("libssl.so.3", "libssl.so.1.1")
cdef bint is_loaded = False


def mapped_library():
    """Return the path of the libssl that Python's ssl module has mapped, or None when it has one built in, or none."""
    if importlib.util.find_spec("_ssl") is None:
        return None
    importlib.import_module("ssl")
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith("libssl.so"):
                return "/" + path
    return None


def load():
    """Find the library, and return the name it was found by. Raises TlsUnavailableError."""
    global is_loaded
    cdef void *library
    cdef const char *missing
    reasons = []
    for name in (mapped_library(), *SYSTEM_NAMES):
        if name is None:
            continue
        path = os.fsencode(name)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL)
        if library == NULL:
            reasons.append(dlerror().decode("utf-8", "replace"))
            continue
        missing = openssl_fill(&openssl, library)
        if missing != NULL:
            reasons.append(f"{name}: no {missing.decode()}")
        elif openssl.OpenSSL_version_num() < OPENSSL_VERSION_MIN:
            reasons.append(f"{name}: older than 1.1.1")
        else:
            is_loaded = True
            return name
    raise TlsUnavailableError("no OpenSSL 1.1.1 or later: " + "; ".join(reasons))


cdef load_openssl():
    if not is_loaded:
        load()


cdef const char *openssl_reason() noexcept nogil:
    # The first is the cause, what follows are those who called it.
    cdef unsigned long code = openssl.ERR_get_error()
    cdef const char *reason = NULL
    if code != 0:
        reason = openssl.ERR_reason_error_string(code)
        openssl.ERR_clear_error()
        if reason == NULL:
            reason = "unnamed error of OpenSSL"
    return reason
