/*
 * What the tests of bridle-tls as a server share: certificates, and what it means to get in. Test
 * code: failures are cmocka assertions.
 */
#ifndef BR_TLS_TEST_SERVER_H
#define BR_TLS_TEST_SERVER_H

#include "tls/test_rig.h"

/* `other` has the name of `authority`, and signed nothing of these. */
extern struct cert authority, other, server, laptop;
extern const struct tls_client_options trusting; /* of the authority */

/* Of a group of tests. */
int server_setup(void **state);
int server_teardown(void **state);
void start(struct tls_rig *r);
/* Clients may show a certificate of the authority, or have to. */
void start_mutual(struct tls_rig *r, bool require);
void assert_through(struct tls_client *c, int plain);
/* Nobody gets in who connects so: the end comes, and the gateway hears of nobody. */
void assert_refused(struct tls_rig *r, const struct tls_client_options *o);
void assert_serves(struct tls_rig *r, const struct tls_client_options *o, const char *name);

#endif
