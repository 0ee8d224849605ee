/*
 * Certificates for tests: made with libcrypto when they are needed, so that none is in the tree and
 * none expires. Test code: failures are cmocka assertions.
 */
#ifndef BR_TEST_CERTS_H
#define BR_TEST_CERTS_H

#include <openssl/x509.h>

struct cert {
    X509 *x509;
    EVP_PKEY *key;
    char *pem, *key_pem; /* of the certificate alone; of the key */
};
struct cert_wish {
    const char *cn, *cn2;    /* NULL: none */
    const char *san;         /* "DNS:a.example,IP:127.0.0.1"; NULL: none */
    const char *usage;       /* "serverAuth", "clientAuth"; NULL: an authority */
    long from_days, to_days; /* seen from now; both 0: a day before and after */
};
/* Signed by `by`, or by itself. Free with cert_free(). */
struct cert cert_make(const struct cert *by, const struct cert_wish *w);
void cert_free(struct cert *c);

#endif
