/*
 * Certificates for tests; see test_certs.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "tls/test_certs.h"

static void add_name(X509_NAME *n, const char *cn)
{
    if (cn)
        assert_int_equal(X509_NAME_add_entry_by_NID(n, NID_commonName, MBSTRING_UTF8,
                                                    (const unsigned char *)cn, -1, -1, 0),
                         1);
}

static void extend(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(e);
    assert_int_equal(X509_add_ext(x, e, -1), 1);
    X509_EXTENSION_free(e);
}

static char *text_of(BIO *bio)
{
    char *p;
    long n = BIO_get_mem_data(bio, &p);
    char *s = calloc(1, (size_t)n + 1);
    assert_non_null(s);
    memcpy(s, p, (size_t)n);
    BIO_free(bio);
    return s;
}

struct cert cert_make(const struct cert *by, const struct cert_wish *w)
{
    static long serial = 1;
    struct cert c = {.x509 = X509_new(), .key = EVP_EC_gen("P-256")};
    assert_non_null(c.x509);
    assert_non_null(c.key);
    X509 *issuer = by ? by->x509 : c.x509;
    bool now = w->from_days == 0 && w->to_days == 0;
    X509_set_version(c.x509, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(c.x509), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(c.x509), (now ? -1 : w->from_days) * 86400);
    X509_gmtime_adj(X509_getm_notAfter(c.x509), (now ? 1 : w->to_days) * 86400);
    X509_set_pubkey(c.x509, c.key);
    add_name(X509_get_subject_name(c.x509), w->cn);
    add_name(X509_get_subject_name(c.x509), w->cn2);
    X509_set_issuer_name(c.x509, X509_get_subject_name(issuer));
    extend(c.x509, issuer, NID_basic_constraints, w->usage ? "CA:FALSE" : "critical,CA:TRUE");
    extend(c.x509, issuer, NID_subject_key_identifier, "hash");
    if (by)
        extend(c.x509, issuer, NID_authority_key_identifier, "keyid:always");
    if (w->usage)
        extend(c.x509, issuer, NID_ext_key_usage, w->usage);
    if (w->san)
        extend(c.x509, issuer, NID_subject_alt_name, w->san);
    assert_true(X509_sign(c.x509, by ? by->key : c.key, EVP_sha256()) > 0);
    BIO *pem = BIO_new(BIO_s_mem()), *key = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_X509(pem, c.x509), 1);
    assert_int_equal(PEM_write_bio_PrivateKey(key, c.key, NULL, NULL, 0, NULL, NULL), 1);
    c.pem = text_of(pem);
    c.key_pem = text_of(key);
    return c;
}

void cert_free(struct cert *c)
{
    X509_free(c->x509);
    EVP_PKEY_free(c->key);
    free(c->pem);
    free(c->key_pem);
    *c = (struct cert){NULL};
}
