/*
 * What TLS is spoken with: versions, ciphers, certificates. Called by main.c with files of an
 * operator, which came as bytes: this program opens none. TLS 1.2 and 1.3, no resumption (so there
 * is no key of tickets, and no name that outlives its certificate), no renegotiation, no early
 * data. A certificate of a client counts only if one of the operator's authorities signed it for
 * that purpose; revocation lists are not read: an operator takes the name out of bridle.lua.
 */
#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "tls/tls_priv.h"

void tls_files_free(struct tls_files *f)
{
    if (f->key.data)
        explicit_bzero(f->key.data, f->key.cap);
    br_buf_free(&f->key);
    br_buf_free(&f->chain);
    br_buf_free(&f->authorities);
}

static int failed(struct br_err *err, const char *what)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());
    int rc = br_err_set(err, BR_E_INVALID_CONFIG, "%s%s%s", what, why ? ": " : "", why ? why : "");
    ERR_clear_error();
    return rc;
}

/* Called instead of asking somebody. */
static int no_password(char *buf, int size, int rwflag, void *u)
{
    (void)buf, (void)size, (void)rwflag, (void)u;
    return -1;
}

/* True at the end of the file, false if what is there is no certificate. */
static bool at_end(void)
{
    unsigned long e = ERR_peek_last_error();
    bool end = ERR_GET_LIB(e) == ERR_LIB_PEM && ERR_GET_REASON(e) == PEM_R_NO_START_LINE;
    if (end)
        ERR_clear_error();
    return end;
}

static int add_authorities(SSL_CTX *ctx, const struct br_buf *pem, bool server, struct br_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem->data, (int)pem->len);
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    X509 *cert;
    unsigned n = 0;
    int rc = 0;
    ERR_clear_error();
    while (bio && rc == 0 && (cert = PEM_read_bio_X509(bio, NULL, no_password, NULL))) {
        if (X509_STORE_add_cert(store, cert) != 1 ||
            (server && SSL_CTX_add_client_CA(ctx, cert) != 1))
            rc = failed(err, "a certificate of the authorities cannot be used");
        X509_free(cert);
        n++;
    }
    BIO_free(bio);
    if (rc == 0 && (!at_end() || n == 0))
        rc = failed(err, "the file of authorities has no certificates in PEM, or one that is "
                         "malformed");
    return rc;
}

/* The certificate first, then those that lead to an authority. */
static int use_chain(SSL_CTX *ctx, const struct br_buf *pem, struct br_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem->data, (int)pem->len);
    X509 *cert;
    unsigned n = 0;
    int rc = 0;
    ERR_clear_error();
    while (bio && rc == 0 && (cert = PEM_read_bio_X509(bio, NULL, no_password, NULL))) {
        if (n++ == 0) {
            if (SSL_CTX_use_certificate(ctx, cert) != 1)
                rc = failed(err, "the certificate cannot be used");
            else if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0)
                br_log(BR_LOG_WARN, "the certificate has expired; clients will refuse it");
        } else if (SSL_CTX_add1_chain_cert(ctx, cert) != 1) {
            rc = failed(err, "a certificate of the chain cannot be used");
        }
        X509_free(cert);
    }
    BIO_free(bio);
    if (rc == 0 && (!at_end() || n == 0))
        rc = failed(err, "the file of the certificate has none in PEM, or one that is malformed");
    return rc;
}

static int use_key(SSL_CTX *ctx, const struct br_buf *pem, struct br_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem->data, (int)pem->len);
    ERR_clear_error();
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    int rc = 0;
    BIO_free(bio);
    if (!key)
        return failed(err, "the private key is not one in PEM without a password");
    if (SSL_CTX_use_PrivateKey(ctx, key) != 1 || SSL_CTX_check_private_key(ctx) != 1)
        rc = failed(err, "the private key does not belong to the certificate");
    EVP_PKEY_free(key);
    return rc;
}

static int use_identity(SSL_CTX *ctx, const struct tls_files *f, struct br_err *err)
{
    int rc = use_chain(ctx, &f->chain, err);
    return rc < 0 ? rc : use_key(ctx, &f->key, err);
}

static SSL_CTX *common(const SSL_METHOD *method)
{
    SSL_CTX *ctx = SSL_CTX_new(method);
    if (!ctx)
        return NULL;
    SSL_CTX_set_security_level(ctx, 2);
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(ctx, 32 * 1024);
    SSL_CTX_set_verify_depth(ctx, 8);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1 ||
        SSL_CTX_set_num_tickets(ctx, 0) != 1) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    return ctx;
}

static const unsigned char http[] = "\x08http/1.1";

/* WebSocket here is HTTP/1.1 and nothing else: who offers only other protocols is told so. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *outlen,
                           const unsigned char *in, unsigned inlen, void *arg)
{
    unsigned char *chosen;
    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, outlen, http, sizeof(http) - 1, in, inlen) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

int tls_context_server(const struct tls_files *f, SSL_CTX **out, struct br_err *err)
{
    SSL_CTX *ctx = common(TLS_server_method());
    if (!ctx)
        return failed(err, "TLS could not be set up");
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    int rc = use_identity(ctx, f, err);
    if (rc == 0 && f->require && !f->authorities.len)
        rc = br_err_set(err, BR_E_INVALID_CONFIG,
                        "a client's certificate is required, but no authority is named that could "
                        "have signed it");
    if (rc == 0 && f->authorities.len) {
        SSL_CTX_set_verify(
            ctx, SSL_VERIFY_PEER | (f->require ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), NULL);
        rc = add_authorities(ctx, &f->authorities, true, err);
    }
    if (rc < 0)
        SSL_CTX_free(ctx);
    else
        *out = ctx;
    return rc;
}

static int system_authorities(SSL_CTX *ctx, int fd, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf pem = BR_BUF_INIT(TLS_AUTHORITIES_MAX);
    if (fd < 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "this system has no file of authorities (package 'ca-certificates'); the "
                          "server was not spoken to. Name one yourself");
    int rc = br_read_all(fd, &pem, "the system's authorities", err);
    return rc < 0 ? rc : add_authorities(ctx, &pem, false, err);
}

int tls_context_client(const struct tls_files *f, int system_fd, SSL_CTX **out, struct br_err *err)
{
    SSL_CTX *ctx = common(TLS_client_method());
    if (!ctx || SSL_CTX_set_alpn_protos(ctx, http, sizeof(http) - 1) != 0) {
        SSL_CTX_free(ctx);
        return failed(err, "TLS could not be set up");
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    int rc = f->authorities.len ? add_authorities(ctx, &f->authorities, false, err)
                                : system_authorities(ctx, system_fd, err);
    if (rc == 0 && f->chain.len)
        rc = use_identity(ctx, f, err);
    else if (rc == 0 && f->key.len)
        rc = br_err_set(err, BR_E_INVALID_CONFIG, "there is a private key without a certificate");
    if (rc < 0)
        SSL_CTX_free(ctx);
    else
        *out = ctx;
    return rc;
}

int tls_expect(SSL *ssl, const char *host, struct br_err *err)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                               X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1) {
        ERR_clear_error();
        return 0; /* an address is no name for SNI (RFC 6066) */
    }
    ERR_clear_error();
    char name[TLS_HOST_MAX];
    size_t n = strlen(host);
    if (n > 1 && host[n - 1] == '.')
        n--; /* the root: neither SNI nor a certificate writes it */
    snprintf(name, sizeof(name), "%.*s", (int)n, host);
    if (!*name || X509_VERIFY_PARAM_set1_host(param, name, 0) != 1 ||
        SSL_set_tlsext_host_name(ssl, name) != 1)
        return failed(err, "the server's name cannot be one of a certificate");
    return 0;
}

bool tls_peer_name(SSL *ssl, char dst[TLS_NAME_MAX])
{
    X509 *cert = SSL_get1_peer_certificate(ssl);
    unsigned char *text = NULL;
    dst[0] = 0;
    if (!cert)
        return true;
    X509_NAME *subject = X509_get_subject_name(cert);
    int at = subject ? X509_NAME_get_index_by_NID(subject, NID_commonName, -1) : -1;
    int n = -1;
    if (at >= 0 && X509_NAME_get_index_by_NID(subject, NID_commonName, at) < 0)
        n = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    bool good = SSL_get_verify_result(ssl) == X509_V_OK && n > 0 && n < (int)TLS_NAME_MAX;
    for (int i = 0; good && i < n; i++)
        good = text[i] >= ' ' && text[i] < 0x7f;
    if (good) {
        memcpy(dst, text, (size_t)n);
        dst[n] = 0;
    }
    OPENSSL_free(text);
    X509_free(cert);
    ERR_clear_error();
    return good;
}

void tls_reason(const SSL *ssl, char *dst, size_t cap)
{
    long verify = SSL_get_verify_result(ssl);
    const char *why = ERR_reason_error_string(ERR_peek_error());
    if (verify != X509_V_OK)
        why = X509_verify_cert_error_string(verify);
    snprintf(dst, cap, "%s", why ? why : "the connection was closed");
    ERR_clear_error();
}
