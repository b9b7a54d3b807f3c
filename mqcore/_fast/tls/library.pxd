# OpenSSL's functions, found when first needed; its constants are named after those of its headers.
from libc.stdint cimport uint64_t

cdef extern from "openssl_table.h" nogil:
    ctypedef struct SSL_CTX:
        pass
    ctypedef struct SSL:
        pass
    ctypedef struct SSL_METHOD:
        pass
    ctypedef struct BIO:
        pass
    ctypedef struct BIO_METHOD:
        pass
    ctypedef struct X509:
        pass
    ctypedef struct X509_NAME:
        pass
    ctypedef struct EVP_PKEY:
        pass
    ctypedef struct EVP_PKEY_CTX:
        pass
    ctypedef struct EVP_MD:
        pass
    ctypedef struct ASN1_STRING:
        pass

    ctypedef struct OpensslTable:
        unsigned long (*OpenSSL_version_num)() noexcept nogil
        unsigned long (*ERR_get_error)() noexcept nogil
        void (*ERR_clear_error)() noexcept nogil
        const char *(*ERR_reason_error_string)(unsigned long code) noexcept nogil
        const SSL_METHOD *(*TLS_server_method)() noexcept nogil
        const SSL_METHOD *(*TLS_client_method)() noexcept nogil
        SSL_CTX *(*SSL_CTX_new)(const SSL_METHOD *method) noexcept nogil
        void (*SSL_CTX_free)(SSL_CTX *context) noexcept nogil
        long (*SSL_CTX_ctrl)(SSL_CTX *context, int command, long value, void *data) noexcept nogil
        uint64_t (*SSL_CTX_set_options)(SSL_CTX *context, uint64_t options) noexcept nogil
        int (*SSL_CTX_set_num_tickets)(SSL_CTX *context, size_t count) noexcept nogil
        void (*SSL_CTX_set_default_passwd_cb_userdata)(SSL_CTX *context, void *data) noexcept nogil
        int (*SSL_CTX_use_certificate_chain_file)(SSL_CTX *context, const char *path) noexcept nogil
        int (*SSL_CTX_use_PrivateKey_file)(SSL_CTX *context, const char *path, int kind) noexcept nogil
        int (*SSL_CTX_check_private_key)(const SSL_CTX *context) noexcept nogil
        int (*SSL_CTX_load_verify_locations)(SSL_CTX *context, const char *file, const char *path) noexcept nogil
        int (*SSL_CTX_set_default_verify_paths)(SSL_CTX *context) noexcept nogil
        void *(*SSL_load_client_CA_file)(const char *path) noexcept nogil
        void (*SSL_CTX_set_client_CA_list)(SSL_CTX *context, void *names) noexcept nogil
        void (*SSL_CTX_set_verify)(SSL_CTX *context, int mode, void *callback) noexcept nogil
        SSL *(*SSL_new)(SSL_CTX *context) noexcept nogil
        void (*SSL_free)(SSL *ssl) noexcept nogil
        void (*SSL_set_bio)(SSL *ssl, BIO *source, BIO *sink) noexcept nogil
        void (*SSL_set_accept_state)(SSL *ssl) noexcept nogil
        void (*SSL_set_connect_state)(SSL *ssl) noexcept nogil
        int (*SSL_is_init_finished)(const SSL *ssl) noexcept nogil
        int (*SSL_read)(SSL *ssl, void *data, int size) noexcept nogil
        int (*SSL_write)(SSL *ssl, const void *data, int size) noexcept nogil
        int (*SSL_get_error)(const SSL *ssl, int result) noexcept nogil
        int (*SSL_shutdown)(SSL *ssl) noexcept nogil
        long (*SSL_get_verify_result)(const SSL *ssl) noexcept nogil
        X509 *(*SSL_get1_peer_certificate)(const SSL *ssl) noexcept nogil
        int (*BIO_get_new_index)() noexcept nogil
        BIO_METHOD *(*BIO_meth_new)(int kind, const char *name) noexcept nogil
        void (*BIO_meth_free)(BIO_METHOD *method) noexcept nogil
        int (*BIO_meth_set_read)(BIO_METHOD *method, int (*read)(BIO *, char *, int) noexcept nogil) noexcept nogil
        int (*BIO_meth_set_write)(
            BIO_METHOD *method, int (*write)(BIO *, const char *, int) noexcept nogil) noexcept nogil
        int (*BIO_meth_set_ctrl)(
            BIO_METHOD *method, long (*control)(BIO *, int, long, void *) noexcept nogil) noexcept nogil
        BIO *(*BIO_new)(const BIO_METHOD *method) noexcept nogil
        const BIO_METHOD *(*BIO_s_mem)() noexcept nogil
        int (*BIO_free)(BIO *bio) noexcept nogil
        void (*BIO_set_init)(BIO *bio, int init) noexcept nogil
        void (*BIO_set_data)(BIO *bio, void *data) noexcept nogil
        void *(*BIO_get_data)(BIO *bio) noexcept nogil
        void (*BIO_set_flags)(BIO *bio, int flags) noexcept nogil
        void (*BIO_clear_flags)(BIO *bio, int flags) noexcept nogil
        long (*BIO_ctrl)(BIO *bio, int command, long value, void *data) noexcept nogil
        const char *(*X509_verify_cert_error_string)(long code) noexcept nogil
        X509 *(*X509_new)() noexcept nogil
        void (*X509_free)(X509 *certificate) noexcept nogil
        int (*X509_set_version)(X509 *certificate, long version) noexcept nogil
        ASN1_STRING *(*X509_get_serialNumber)(X509 *certificate) noexcept nogil
        int (*ASN1_INTEGER_set)(ASN1_STRING *number, long value) noexcept nogil
        ASN1_STRING *(*X509_getm_notBefore)(const X509 *certificate) noexcept nogil
        ASN1_STRING *(*X509_getm_notAfter)(const X509 *certificate) noexcept nogil
        ASN1_STRING *(*X509_gmtime_adj)(ASN1_STRING *time, long seconds) noexcept nogil
        X509_NAME *(*X509_get_subject_name)(const X509 *certificate) noexcept nogil
        int (*X509_set_issuer_name)(X509 *certificate, X509_NAME *name) noexcept nogil
        int (*X509_NAME_add_entry_by_txt)(X509_NAME *name, const char *field, int kind, const unsigned char *text,
                                          int size, int place, int group) noexcept nogil
        int (*X509_NAME_print_ex)(
            BIO *out, const X509_NAME *name, int indent, unsigned long flags) noexcept nogil
        int (*X509_set_pubkey)(X509 *certificate, EVP_PKEY *key) noexcept nogil
        int (*X509_sign)(X509 *certificate, EVP_PKEY *key, const EVP_MD *digest) noexcept nogil
        const EVP_MD *(*EVP_sha256)() noexcept nogil
        EVP_PKEY_CTX *(*EVP_PKEY_CTX_new_id)(int kind, void *engine) noexcept nogil
        void (*EVP_PKEY_CTX_free)(EVP_PKEY_CTX *maker) noexcept nogil
        int (*EVP_PKEY_keygen_init)(EVP_PKEY_CTX *maker) noexcept nogil
        int (*EVP_PKEY_CTX_ctrl_str)(EVP_PKEY_CTX *maker, const char *name, const char *value) noexcept nogil
        int (*EVP_PKEY_keygen)(EVP_PKEY_CTX *maker, EVP_PKEY **key) noexcept nogil
        void (*EVP_PKEY_free)(EVP_PKEY *key) noexcept nogil
        int (*PEM_write_bio_X509)(BIO *out, X509 *certificate) noexcept nogil
        int (*PEM_write_bio_PrivateKey)(BIO *out, EVP_PKEY *key, void *cipher, unsigned char *password, int size,
                                        void *callback, void *data) noexcept nogil

    enum:
        OPENSSL_VERSION_MIN
        OPENSSL_CTRL_MODE
        OPENSSL_CTRL_SESS_CACHE_MODE
        OPENSSL_CTRL_MIN_PROTO_VERSION
        OPENSSL_MODE_RELEASE_BUFFERS
        OPENSSL_OP_NO_TICKET
        OPENSSL_OP_NO_COMPRESSION
        OPENSSL_OP_NO_RENEGOTIATION
        OPENSSL_TLS1_2
        OPENSSL_FILETYPE_PEM
        OPENSSL_VERIFY_NONE
        OPENSSL_VERIFY_PEER
        OPENSSL_VERIFY_FAIL_IF_NO_PEER_CERT
        OPENSSL_VERIFIED
        OPENSSL_ERROR_WANT_READ
        OPENSSL_ERROR_ZERO_RETURN
        OPENSSL_BIO_SOURCE_SINK
        OPENSSL_BIO_CTRL_INFO
        OPENSSL_BIO_CTRL_FLUSH
        OPENSSL_BIO_READ_AGAIN
        OPENSSL_BIO_RETRY_FLAGS
        OPENSSL_NAME_RFC2253
        OPENSSL_PKEY_EC
        OPENSSL_TEXT_ASCII

cdef OpensslTable openssl       # good once load_openssl has returned
# Find the library; raises TlsUnavailableError that says where it was looked for.
cdef load_openssl()
# What the calling thread's last failure was, in OpenSSL's words; NULL when it left none. Takes it out of the queue.
cdef const char *openssl_reason() noexcept nogil
