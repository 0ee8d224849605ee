/*
 * core/broker, private: a reader of JSON text (RFC 8259) that makes no tree. Whoever calls it says
 * what it expects next and gets slices of the text; everything else is skipped, with its grammar
 * checked all the same. Keys are compared after their escapes were taken away, and a key that the
 * caller knows may come once in an object, so that nobody behind reads the text differently.
 *
 * A function that returns false has failed, and so does everything after it; `state` says how:
 * BR_SCAN_SHORT means that the text ended inside of the value.
 */
#ifndef BR_BROKER_SCAN_H
#define BR_BROKER_SCAN_H

#include "base/base.h"

enum br_scan_state { BR_SCAN_OK = 0, BR_SCAN_SHORT, BR_SCAN_BAD, BR_SCAN_REFUSED };

struct br_scan {
    const char *p, *end;
    const char *key; /* the quote of the last key */
    const char *why; /* BR_SCAN_BAD, BR_SCAN_REFUSED: a phrase */
    unsigned depth;  /* open brackets; at most BR_JSON_DEPTH_MAX */
    uint8_t state;   /* enum br_scan_state */
    bool lines;      /* CR and LF between values are white space; otherwise the text ends there */
};

/* The characters of a string, between its quotes; p is NULL if there was none. */
struct br_slice {
    const char *p;
    size_t n;
    bool escaped; /* holds a backslash */
};

/* Keys that a caller knows: id is the index in the table, below 64. */
struct br_scan_name {
    const char *name;
    unsigned n;
};
#define BR_NAME(s)                                                                                 \
    {                                                                                              \
        s, sizeof(s) - 1                                                                           \
    }
struct br_scan_keys {
    const struct br_scan_name *names;
    unsigned n;
};
/* One object or list, while its members are read. Begins as zeroes. */
struct br_scan_in {
    uint64_t seen; /* of the table's keys */
    unsigned next; /* the key that came next the last time, probably */
    bool any;
};

static inline void br_scan_init(struct br_scan *j, const void *p, size_t n, bool lines)
{
    *j = (struct br_scan){.p = p, .end = (const char *)p + n, .lines = lines};
}
bool br_scan_fail(struct br_scan *j, enum br_scan_state state, const char *why);
#define br_scan_refuse(j, why) br_scan_fail(j, BR_SCAN_REFUSED, why)

/* The first character of the next value, white space skipped; 0 after a failure. */
char br_scan_peek(struct br_scan *j);
/* '{' or '['. */
bool br_scan_open(struct br_scan *j, char c);
/*
 * The next key of the object, with its colon: *id, or -1 for one that the table does not have.
 * False at the closing bracket, which is taken (state is still BR_SCAN_OK), and after a failure.
 * `text`, if not NULL, gets the key.
 */
bool br_scan_key(struct br_scan *j, struct br_scan_in *in, const struct br_scan_keys *t, int *id,
                 struct br_slice *text);
/* True if there is another element; false at the closing bracket, which is taken. */
bool br_scan_element(struct br_scan *j, struct br_scan_in *in);
bool br_scan_string(struct br_scan *j, struct br_slice *s);
/* The same, when the opening quote was taken already. */
bool br_scan_string_rest(struct br_scan *j, struct br_slice *s);
/* A string, or null, which leaves p NULL. Anything else is refused with `why`. */
bool br_scan_string_or_null(struct br_scan *j, struct br_slice *s, const char *why);
/* null: *is is true and it is taken; otherwise nothing is. */
bool br_scan_null(struct br_scan *j, bool *is);
bool br_scan_bool(struct br_scan *j, bool *v, const char *why);
/* A whole number from 0 to 2^53, written without fraction and exponent; else refused with `why`. */
bool br_scan_count(struct br_scan *j, uint64_t *v, const char *why);
/* Any value. `s`, if not NULL, gets all of its text. */
bool br_scan_skip(struct br_scan *j, struct br_slice *s);
/* Nothing but white space is left. */
bool br_scan_done(struct br_scan *j);

/* Without its escapes, terminated, in `dst`; -1 if it does not fit or holds NUL. A lone surrogate
 * becomes U+FFFD. */
int br_slice_text(const struct br_slice *s, char *dst, size_t cap);
bool br_slice_is(const struct br_slice *s, const char *text);
/*
 * Some of the characters of *s, without escapes, as UTF-8 into `dst` (cap >= 8); *s becomes the
 * rest. How many bytes; 0 at the end. Half of a surrogate pair comes as three bytes.
 */
size_t br_slice_take(struct br_slice *s, char *dst, size_t cap);

#endif
