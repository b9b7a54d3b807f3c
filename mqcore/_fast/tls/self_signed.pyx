"""A key and a certificate that vouches for itself, as RocketMQ's servers show one until they are given a real one."""

from mqcore._fast.tls.library cimport (BIO, EVP_PKEY, EVP_PKEY_CTX, OPENSSL_BIO_CTRL_INFO, OPENSSL_PKEY_EC,
                                       OPENSSL_TEXT_ASCII, X509, X509_NAME, load_openssl, openssl)

import secrets

from mqcore.errors import TlsError

cdef enum:
    DAY_S = 86400
    YEARS_S = 10 * 366 * DAY_S


cdef bytes written(BIO *bio):
    cdef char *data = NULL
    cdef long size = openssl.BIO_ctrl(bio, OPENSSL_BIO_CTRL_INFO, 0, &data)
    return data[:size]


cdef EVP_PKEY *new_key() noexcept:
    cdef EVP_PKEY *key = NULL
    cdef EVP_PKEY_CTX *maker = openssl.EVP_PKEY_CTX_new_id(OPENSSL_PKEY_EC, NULL)
    if (maker != NULL and openssl.EVP_PKEY_keygen_init(maker) == 1
            and openssl.EVP_PKEY_CTX_ctrl_str(maker, "ec_paramgen_curve", "P-256") == 1
            and openssl.EVP_PKEY_CTX_ctrl_str(maker, "ec_param_enc", "named_curve") == 1):
        openssl.EVP_PKEY_keygen(maker, &key)
    openssl.EVP_PKEY_CTX_free(maker)
    return key


cdef bint sign(X509 *certificate, EVP_PKEY *key, const unsigned char *name, long serial) noexcept:
    cdef X509_NAME *subject = openssl.X509_get_subject_name(certificate)
    openssl.X509_gmtime_adj(openssl.X509_getm_notBefore(certificate), -DAY_S)
    openssl.X509_gmtime_adj(openssl.X509_getm_notAfter(certificate), YEARS_S)
    return (openssl.X509_set_version(certificate, 2) == 1
            and openssl.ASN1_INTEGER_set(openssl.X509_get_serialNumber(certificate), serial) == 1
            and openssl.X509_NAME_add_entry_by_txt(subject, "CN", OPENSSL_TEXT_ASCII, name, -1, -1, 0) == 1
            and openssl.X509_set_issuer_name(certificate, subject) == 1
            and openssl.X509_set_pubkey(certificate, key) == 1
            and openssl.X509_sign(certificate, key, openssl.EVP_sha256()) > 0)


def make(name: str = "localhost"):
    """Return a certificate for *name* that is good for ten years, and its key (P-256), both in PEM.

    Raises TlsError, TlsUnavailableError.
    """
    load_openssl()
    cdef EVP_PKEY *key = new_key()
    cdef X509 *certificate = openssl.X509_new()
    cdef BIO *shown = openssl.BIO_new(openssl.BIO_s_mem())
    cdef BIO *hidden = openssl.BIO_new(openssl.BIO_s_mem())
    cdef bytes text = name.encode("ascii")
    try:
        if (key == NULL or certificate == NULL or shown == NULL or hidden == NULL
                or not sign(certificate, key, text, secrets.randbits(62))
                or openssl.PEM_write_bio_X509(shown, certificate) != 1
                or openssl.PEM_write_bio_PrivateKey(hidden, key, NULL, NULL, 0, NULL, NULL) != 1):
            raise TlsError("OpenSSL could not make a certificate")
        return written(shown), written(hidden)
    finally:
        openssl.BIO_free(shown)
        openssl.BIO_free(hidden)
        openssl.X509_free(certificate)
        openssl.EVP_PKEY_free(key)
