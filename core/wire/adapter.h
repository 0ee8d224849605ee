/*
 * Adapters as they cross channels: what an adapter.lua says (data that its maker wrote), and what
 * the operator's bridle.lua makes of it. Decoders bound every field and leave `r->failed` set.
 */
#ifndef BR_WIRE_ADAPTER_H
#define BR_WIRE_ADAPTER_H

#include "wire/types.h"

#define BR_ADAPTER_ENTRY_MAX 8u
#define BR_ADAPTER_WORD_MAX 256u
#define BR_ADAPTERS_MAX 32u
#define BR_ADAPTER_PROFILES_MAX 8u
/* "pi-coding@1" */
#define BR_ADAPTER_REF_MAX 80u
/* The text of an adapter.lua. */
#define BR_ADAPTER_TEXT_MAX (64u * 1024)

/* An adapter, as far as it concerns one profile. */
struct br_adapter {
    char id[64]; /* kebab-case */
    uint32_t revision;
    uint8_t sha256[32]; /* of the text of adapter.lua */
    uint32_t nentry;
    char entry[BR_ADAPTER_ENTRY_MAX][BR_ADAPTER_WORD_MAX]; /* argv; the first is absolute */
    uint32_t ntools;
    char tools[BR_LEASE_TOOLS_MAX][64]; /* that it may offer to the model */
    uint32_t routes;                    /* bits of enum br_route */
    uint8_t session;                    /* 1: it keeps sessions below /state */
    uint8_t gate;                       /* 1: it can ask before each tool call */
    uint8_t artifact;                   /* enum br_frame_artifact */
    uint64_t artifact_bytes;
    uint32_t output_bytes, trace_bytes;
    char system[4096]; /* instructions; "": none */
};
void br_adapter_put(struct br_buf *b, const struct br_adapter *a);
void br_adapter_get(struct br_rd *r, struct br_adapter *a);

/* What the operator lets it have. */
struct br_adapter_terms {
    char ref[BR_ADAPTER_REF_MAX]; /* ID@REVISION */
    uint32_t nprofiles;
    char profiles[BR_ADAPTER_PROFILES_MAX][64];
    char image[BR_NAME_MAX]; /* "": that of the profile, or --image */
    char file[BR_PATH_MAX];  /* its adapter.lua; "": the one that is built in */
    uint8_t gate;            /* 1: each tool call is asked about */
    uint8_t context_files;
    uint32_t requests, in_flight;
    uint64_t tokens, request_bytes, response_bytes;
    uint32_t answer_tokens;
    uint32_t seconds;      /* of the lease; 0: as long as the run */
    uint32_t keep_seconds; /* of a session's state */
};
void br_adapter_terms_put(struct br_buf *b, const struct br_adapter_terms *t);
void br_adapter_terms_get(struct br_rd *r, struct br_adapter_terms *t);
bool br_adapter_allows(const struct br_adapter_terms *t, const char *profile);

/* What a session is told of the harness that it is to drive. */
struct br_harness {
    struct br_adapter adapter;
    struct br_adapter_terms terms;
    char token[65];
    char session_id[BR_ID_MAX]; /* "": the adapter keeps none */
    uint8_t resume;
};
void br_harness_put(struct br_buf *b, const struct br_harness *h);
void br_harness_get(struct br_rd *r, struct br_harness *h);

#endif
