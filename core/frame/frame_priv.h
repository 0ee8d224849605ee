/* core/frame, private: checks of JSON that both readers make. */
#ifndef BR_FRAME_PRIV_H
#define BR_FRAME_PRIV_H

#include "frame/frame.h"

/* A key of an object. `want` is the type that it has; optional ones may be away. */
struct frame_key {
    const char *name;
    json_type want;
    bool optional;
    bool nullable;
    size_t min, max; /* of a text: bytes */
};
/* -BR_E_INVALID_FRAME naming `at` and the key, unless `o` is an object with exactly these keys. */
int frame_keys(const json_t *o, const char *at, const struct frame_key *keys, size_t n,
               struct br_err *err);
/* The whole of a frame as JSON; NULL and the reason. */
json_t *frame_load(const void *p, size_t n, size_t max, struct br_err *err);
int frame_bad(struct br_err *err, const char *fmt, ...) BR_PRINTF(2, 3);
/* An integer from min to max, or false. */
bool frame_number(const json_t *v, json_int_t min, json_int_t max);
/* {"id", "revision"} */
int frame_adapter(const json_t *o, const char **id, uint32_t *revision, struct br_err *err);
/* The index of a text in `names`, or -1. */
int frame_index(const json_t *v, const char *const *names);
const char *frame_text(const json_t *o, const char *key);
/* Letters, digits, '.', '_' and '-': what a name may be that is shown and stored. */
bool frame_is_name(const char *s, size_t max);

#endif
