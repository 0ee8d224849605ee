/*
 * core/broker, private: the parts of one answer's inspection. answer.c has the stream of events and
 * what all dialects share; answer_chat.c, answer_messages.c and answer_responses.c know what the
 * events of one mean.
 */
#ifndef BR_BROKER_DIALECT_PRIV_H
#define BR_BROKER_DIALECT_PRIV_H

#include "broker/dialect.h"
#include "broker/scan.h"

/* Of a stream: one line, and the data lines of one event together. A Responses stream says its
 * whole answer once more in its last event. */
#define BR_ANSWER_LINE_MAX (4u * 1024 * 1024)
#define BR_ANSWER_EVENT_MAX (4u * 1024 * 1024)
/* An answer that is not streamed is held until it was read to its end. */
#define BR_ANSWER_WHOLE_MAX BR_BLOB_MAX
/* Of an answer that is an error; the rest is dropped. */
#define BR_ANSWER_ERROR_MAX (64u * 1024)
/* The largest count of tokens that is believed. */
#define BR_ANSWER_TOKENS_MAX (1ull << 40)
#define BR_CALL_ID_MAX 256u
/* How much of a provider's message a guest hears. */
#define BR_PROVIDER_TEXT_MAX 300u

/* ---- the arguments of a call (argjson.c) ---- */

struct br_argjson {
    uint8_t state;
    bool key;   /* the string is a key */
    bool begun; /* something other than white space was seen */
    unsigned depth, nodes;
    uint64_t objects; /* bit: the bracket of that depth is an object's */
    const char *word; /* the rest of true, false, null */
    size_t size;      /* bytes, up to one more than BR_TOOL_JSON_MAX */
};
/* Begins as zeroes. */
void br_argjson_put(struct br_argjson *t, const char *p, size_t n);
/* One object and no more, within depth and nodes; or nothing at all, which means {}. */
bool br_argjson_ok(const struct br_argjson *t);

/* ---- one answer ---- */

/* A tool call of the answer. */
struct br_call {
    uint64_t index; /* where it is */
    uint64_t said;  /* where the provider put it; UINT64_MAX: it did not say */
    char id[BR_CALL_ID_MAX + 1];
    char renamed[BR_CALL_ID_MAX + 16]; /* what a repeated id became; "": it did not */
    uint64_t name_hash;
    uint64_t hash; /* of the arguments */
    bool whole;    /* all of its arguments have come */
    struct br_argjson json;
};

/* Replace the text from p on, `n` bytes, by `len` bytes of a->words from `at` on. */
struct br_edit {
    const char *p;
    size_t n, at, len;
};

struct br_usage {
    bool known;
    uint64_t prompt, completion, total;
    bool has_prompt, has_completion, has_total;
    struct br_slice total_at; /* the number, to be replaced */
};

/* What a provider says of an error. */
struct br_said {
    bool is;
    struct br_slice type, code, message;
};

/*
 * Where one event of text differs from the next: between the quotes of a string, or a number. The
 * rest of an event that was read is kept, and compared with the next instead of reading that.
 */
#define BR_HOLES_MAX 6u
#define BR_SHAPE_MAX 1024u
struct br_hole {
    const char *p;
    size_t n;
    bool number;
};
struct br_shape {
    unsigned nholes; /* 0: there is none */
    unsigned at[BR_HOLES_MAX], n;
    bool number[BR_HOLES_MAX];
    char text[BR_SHAPE_MAX]; /* without what is in the holes, which are at these offsets */
};

struct br_answer;
/*
 * What a dialect knows. `read` takes the JSON of one event, or a whole answer, from `j`, and
 * changes nothing of what the answer has said so far: false if the text is not what it should be,
 * which j->state says. Then `apply` judges what was read: edits and a->drop say what becomes of the
 * text.
 */
struct br_dialect {
    void *(*make)(void); /* what an event is read into; freed with free() */
    bool (*read)(struct br_answer *a, struct br_scan *j, bool whole);
    int (*apply)(struct br_answer *a, bool whole, struct br_err *err);
    /*
     * Of an event that was read and applied: where its text is, if it has no other effect than that
     * there is more text, and so would the next one, if it is the same but for that. 0: it has.
     */
    unsigned (*holes)(const struct br_answer *a, struct br_hole *h);
    bool names; /* events carry their type as a name as well */
};
extern const struct br_dialect br_dialect_chat, br_dialect_messages, br_dialect_responses;

struct br_chat_read;
struct br_messages_read;
struct br_responses_read;

struct br_answer {
    struct br_answer_facts facts;
    struct br_ask_facts ask;
    const struct br_dialect *dialect;
    bool normalize, guest;
    uint64_t total, total_max;
    struct br_err failed; /* code 0: not */
    enum { BR_ANSWER_STREAM, BR_ANSWER_WHOLE, BR_ANSWER_ERROR } kind;
    uint32_t status;

    /* the stream, as far as it is not judged */
    uint8_t head[4]; /* the first bytes, which may be a byte order mark or a compressed body's */
    unsigned nhead;
    bool started, skip_lf, has_data, has_name, done;
    struct br_buf line, data; /* also: an answer that is not streamed is in `data` */
    char name[64];            /* of the event; longer ones are cut, and are none that is known */

    /* what one event was read into */
    union {
        struct br_chat_read *chat;
        struct br_messages_read *messages;
        struct br_responses_read *responses;
        void *any;
    } read;
    struct br_usage usage;
    struct br_said said;
    struct br_slice type; /* of the event, where it has one */
    bool drop;            /* the event is not passed on */
    struct br_shape shape;
    struct br_edit *edits;
    size_t nedits, edits_cap;
    struct br_buf words;

    /* what the answer has said so far */
    struct br_call *calls;
    uint32_t ncalls, calls_cap;
    uint64_t seed; /* of invented ids */
    unsigned phase;
    unsigned block; /* the kind of the open block; 0: none */
    uint64_t blocks;
};

/* Refuse the answer: -BR_E_PROVIDER_INVALID with "the provider's answer ...; it was not used". */
int br_answer_invalid(struct br_err *err, const char *what);
/* An edit of the event's text; replacements are formatted. In the order of the text. */
int br_answer_edit(struct br_answer *a, const struct br_slice *old, struct br_err *err,
                   const char *fmt, ...) BR_PRINTF(4, 5);
/* The value as it stands in the text, quotes included. */
struct br_slice br_slice_quoted(const struct br_slice *s);

/* {"type"|"code"|"message"} of an error; or a string, or any other value but null. */
bool br_said_read(struct br_scan *j, struct br_said *said);
/* -BR_E_PROVIDER_STATUS with what the provider said, printable and bounded. */
int br_said_error(const struct br_said *said, struct br_err *err);

/* The body of an error that a provider answered with, as it is passed on. */
void br_error_pass(uint32_t route, uint32_t status, const char *p, size_t n, struct br_buf *out);

/* The usage of an event or answer: `keys` are the names of prompt, completion, total. A null says
 * nothing. False as br_scan_*(). */
bool br_usage_read(struct br_scan *j, const struct br_scan_keys *keys, struct br_usage *u);
/* The usage that was read, into the facts. */
int br_usage_apply(struct br_answer *a, struct br_err *err);

/* A new call; NULL with `err` set. Edits `id` if another has it. */
struct br_call *br_call_add(struct br_answer *a, uint64_t index, const struct br_slice *id,
                            const struct br_slice *name, struct br_err *err);
struct br_call *br_call_find(struct br_answer *a, uint64_t index);
/* The id of a later event of the call is that of its first; renamed where that was. */
int br_call_same(struct br_answer *a, const struct br_call *c, const struct br_slice *id,
                 struct br_err *err);
/* More of its arguments. */
int br_call_arguments(struct br_answer *a, struct br_call *c, const struct br_slice *text,
                      struct br_err *err);
/* Its arguments once more, all of them: they are the ones that came, or the first. */
int br_call_all(struct br_answer *a, struct br_call *c, const struct br_slice *text,
                struct br_err *err);
/* The arguments of every call are JSON objects. */
int br_calls_check(struct br_answer *a, struct br_err *err);
uint64_t br_slice_hash(const struct br_slice *s);

/* One more hole, if there is such a string, or a number of digits alone; how many there are then.
 */
unsigned br_hole_text(struct br_hole *h, unsigned n, const struct br_slice *s);
unsigned br_hole_number(struct br_hole *h, unsigned n, const struct br_slice *s);

#endif
