/* What mqcore calls of OpenSSL, found at run time in the library that the interpreter itself uses: neither its headers nor
 * its link libraries are needed to build, and a machine without it runs everything but TLS. Declared after the manual pages of
 * OpenSSL 1.1.1 and 3; macros of its headers stand below as the calls and numbers that they are. */
#ifndef MQCORE_OPENSSL_TABLE_H
#define MQCORE_OPENSSL_TABLE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_st SSL;
typedef struct ssl_method_st SSL_METHOD;
typedef struct bio_st BIO;
typedef struct bio_method_st BIO_METHOD;
typedef struct x509_st X509;
typedef struct X509_name_st X509_NAME;
typedef struct evp_pkey_st EVP_PKEY;
typedef struct evp_pkey_ctx_st EVP_PKEY_CTX;
typedef struct evp_md_st EVP_MD;
typedef struct asn1_string_st ASN1_STRING;

#define OPENSSL_FUNCTIONS(F) \
    F(unsigned long, OpenSSL_version_num, (void)) \
    F(unsigned long, ERR_get_error, (void)) \
    F(void, ERR_clear_error, (void)) \
    F(const char *, ERR_reason_error_string, (unsigned long)) \
    F(const SSL_METHOD *, TLS_server_method, (void)) \
    F(const SSL_METHOD *, TLS_client_method, (void)) \
    F(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *)) \
    F(void, SSL_CTX_free, (SSL_CTX *)) \
    F(long, SSL_CTX_ctrl, (SSL_CTX *, int, long, void *)) \
    F(uint64_t, SSL_CTX_set_options, (SSL_CTX *, uint64_t)) \
    F(int, SSL_CTX_set_num_tickets, (SSL_CTX *, size_t)) \
    F(void, SSL_CTX_set_default_passwd_cb_userdata, (SSL_CTX *, void *)) \
    F(int, SSL_CTX_use_certificate_chain_file, (SSL_CTX *, const char *)) \
    F(int, SSL_CTX_use_PrivateKey_file, (SSL_CTX *, const char *, int)) \
    F(int, SSL_CTX_check_private_key, (const SSL_CTX *)) \
    F(int, SSL_CTX_load_verify_locations, (SSL_CTX *, const char *, const char *)) \
    F(int, SSL_CTX_set_default_verify_paths, (SSL_CTX *)) \
    F(void *, SSL_load_client_CA_file, (const char *)) \
    F(void, SSL_CTX_set_client_CA_list, (SSL_CTX *, void *)) \
    F(void, SSL_CTX_set_verify, (SSL_CTX *, int, void *)) \
    F(SSL *, SSL_new, (SSL_CTX *)) \
    F(void, SSL_free, (SSL *)) \
    F(void, SSL_set_bio, (SSL *, BIO *, BIO *)) \
    F(void, SSL_set_accept_state, (SSL *)) \
    F(void, SSL_set_connect_state, (SSL *)) \
    F(int, SSL_is_init_finished, (const SSL *)) \
    F(int, SSL_read, (SSL *, void *, int)) \
    F(int, SSL_write, (SSL *, const void *, int)) \
    F(int, SSL_get_error, (const SSL *, int)) \
    F(int, SSL_shutdown, (SSL *)) \
    F(long, SSL_get_verify_result, (const SSL *)) \
    F(X509 *, SSL_get1_peer_certificate, (const SSL *)) \
    F(int, BIO_get_new_index, (void)) \
    F(BIO_METHOD *, BIO_meth_new, (int, const char *)) \
    F(void, BIO_meth_free, (BIO_METHOD *)) \
    F(int, BIO_meth_set_read, (BIO_METHOD *, int (*)(BIO *, char *, int))) \
    F(int, BIO_meth_set_write, (BIO_METHOD *, int (*)(BIO *, const char *, int))) \
    F(int, BIO_meth_set_ctrl, (BIO_METHOD *, long (*)(BIO *, int, long, void *))) \
    F(BIO *, BIO_new, (const BIO_METHOD *)) \
    F(const BIO_METHOD *, BIO_s_mem, (void)) \
    F(int, BIO_free, (BIO *)) \
    F(void, BIO_set_init, (BIO *, int)) \
    F(void, BIO_set_data, (BIO *, void *)) \
    F(void *, BIO_get_data, (BIO *)) \
    F(void, BIO_set_flags, (BIO *, int)) \
    F(void, BIO_clear_flags, (BIO *, int)) \
    F(long, BIO_ctrl, (BIO *, int, long, void *)) \
    F(const char *, X509_verify_cert_error_string, (long)) \
    F(X509 *, X509_new, (void)) \
    F(void, X509_free, (X509 *)) \
    F(int, X509_set_version, (X509 *, long)) \
    F(ASN1_STRING *, X509_get_serialNumber, (X509 *)) \
    F(int, ASN1_INTEGER_set, (ASN1_STRING *, long)) \
    F(ASN1_STRING *, X509_getm_notBefore, (const X509 *)) \
    F(ASN1_STRING *, X509_getm_notAfter, (const X509 *)) \
    F(ASN1_STRING *, X509_gmtime_adj, (ASN1_STRING *, long)) \
    F(X509_NAME *, X509_get_subject_name, (const X509 *)) \
    F(int, X509_set_issuer_name, (X509 *, X509_NAME *)) \
    F(int, X509_NAME_add_entry_by_txt, (X509_NAME *, const char *, int, const unsigned char *, int, int, int)) \
    F(int, X509_NAME_print_ex, (BIO *, const X509_NAME *, int, unsigned long)) \
    F(int, X509_set_pubkey, (X509 *, EVP_PKEY *)) \
    F(int, X509_sign, (X509 *, EVP_PKEY *, const EVP_MD *)) \
    F(const EVP_MD *, EVP_sha256, (void)) \
    F(EVP_PKEY_CTX *, EVP_PKEY_CTX_new_id, (int, void *)) \
    F(void, EVP_PKEY_CTX_free, (EVP_PKEY_CTX *)) \
    F(int, EVP_PKEY_keygen_init, (EVP_PKEY_CTX *)) \
    F(int, EVP_PKEY_CTX_ctrl_str, (EVP_PKEY_CTX *, const char *, const char *)) \
    F(int, EVP_PKEY_keygen, (EVP_PKEY_CTX *, EVP_PKEY **)) \
    F(void, EVP_PKEY_free, (EVP_PKEY *)) \
    F(int, PEM_write_bio_X509, (BIO *, X509 *)) \
    F(int, PEM_write_bio_PrivateKey, (BIO *, EVP_PKEY *, void *, unsigned char *, int, void *, void *))

enum {
    OPENSSL_VERSION_MIN = 0x10101000,
    OPENSSL_CTRL_MODE = 33,
    OPENSSL_CTRL_SESS_CACHE_MODE = 44,
    OPENSSL_CTRL_MIN_PROTO_VERSION = 123,
    OPENSSL_MODE_RELEASE_BUFFERS = 0x10,
    OPENSSL_OP_NO_TICKET = 0x4000,
    OPENSSL_OP_NO_COMPRESSION = 0x20000,
    OPENSSL_OP_NO_RENEGOTIATION = 0x40000000,
    OPENSSL_TLS1_2 = 0x0303,
    OPENSSL_FILETYPE_PEM = 1,
    OPENSSL_VERIFY_NONE = 0,
    OPENSSL_VERIFY_PEER = 1,
    OPENSSL_VERIFY_FAIL_IF_NO_PEER_CERT = 2,
    OPENSSL_VERIFIED = 0,
    OPENSSL_ERROR_WANT_READ = 2,
    OPENSSL_ERROR_ZERO_RETURN = 6,
    OPENSSL_BIO_SOURCE_SINK = 0x0400,
    OPENSSL_BIO_CTRL_INFO = 3,
    OPENSSL_BIO_CTRL_FLUSH = 11,
    OPENSSL_BIO_READ_AGAIN = 0x09,      /* BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY */
    OPENSSL_BIO_RETRY_FLAGS = 0x0F,
    OPENSSL_NAME_RFC2253 = 0x1110317,   /* XN_FLAG_RFC2253: ASCII, escaped, the last part first */
    OPENSSL_PKEY_EC = 408,
    OPENSSL_TEXT_ASCII = 0x1001
};

typedef struct {
#define OPENSSL_MEMBER(type, name, arguments) type (*name) arguments;
    OPENSSL_FUNCTIONS(OPENSSL_MEMBER)
#undef OPENSSL_MEMBER
} OpensslTable;

/* The function of OpenSSL 1.1.1 that has been renamed since. */
static inline void *openssl_find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL && strcmp(name, "SSL_get1_peer_certificate") == 0)
        found = dlsym(library, "SSL_get_peer_certificate");
    return found;
}

/* Fill *table* from an opened library; the name of the first function that it lacks, or NULL. */
static inline const char *openssl_fill(OpensslTable *table, void *library) {
#define OPENSSL_FIND(type, name, arguments) \
    if ((*(void **)&table->name = openssl_find(library, #name)) == NULL) return #name;
    OPENSSL_FUNCTIONS(OPENSSL_FIND)
#undef OPENSSL_FIND
    return NULL;
}

#endif
