/*
 * core/gateway, tests: a client of harness/acp/1 in the played world of test_world.h.
 */
#ifndef BR_GATEWAY_TEST_STRICT_H
#define BR_GATEWAY_TEST_STRICT_H

#include "gateway/test_world.h"

#define CAPS "\"capabilities\":{\"streaming\":true,\"permissioning\":true}"
#define EXT                                                                                        \
    "\"capabilities\":{\"streaming\":true,\"permissioning\":true,\"sessions\":true,"               \
    "\"extensions\":[\"bridle/1\"]}"
#define INIT(caps)                                                                                 \
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":"     \
    "\"harness/acp/1\",\"clientName\":\"c\"," caps "}}"
#define REQ(id, method, params)                                                                    \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\",\"params\":{" params "}}"
#define RESULT(id, result) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":" result "}"

void hears(struct conn *c, const char *text);
/* Nothing more was heard. */
void silent(struct conn *c);
/* An error with this id (as JSON), code and name, and nothing else in it. */
void refused(struct conn *c, const char *id, int code, const char *name);
/* Connected and initialized, with these capabilities. */
struct conn *connect_as(struct gateway *g, const char *caps, const char *name,
                        enum br_access access);
struct conn *client(struct gateway *g);
struct conn *extended(struct gateway *g);
/* A session of its own; bridled's side of it. */
struct run *created(struct gateway *g, struct conn *c);
void prompt(struct gateway *g, struct conn *c, const char *session);
/* Created, prompted with id 2, and its first event was heard. */
struct run *running(struct gateway *g, struct conn *c);
/* The next message is this event, of the protocol or of the extension. */
void hears_event(struct conn *c, const char *session, uint64_t seq, const char *type);
void hears_own(struct conn *c, const char *session, int64_t after, uint64_t seq, const char *type);
/* The next message is the answer to this id. */
void hears_answer(struct conn *c, int id);

#endif
