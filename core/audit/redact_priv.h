/*
 * Inside the redactor: the automaton (redact_build.c), the shapes (redact_shapes.c), and the scan
 * over a window of text (redact.c).
 */
#ifndef BR_AUDIT_REDACT_PRIV_H
#define BR_AUDIT_REDACT_PRIV_H

#include "audit/redact.h"

#define REDACT_NAME_MAX 64u

/* ---- character classes of the runs that shapes verify ---- */
enum redact_class {
    CLASS_ALNUM,   /* A-Z a-z 0-9 */
    CLASS_WORD,    /* and _ */
    CLASS_DASH,    /* alnum and - */
    CLASS_URLSAFE, /* alnum, _ and - */
    CLASS_DOTTED,  /* urlsafe and . */
    CLASS_UPPER,   /* A-Z 0-9 */
    CLASS_TOKEN68, /* RFC 9110: alnum - . _ ~ + / = */
    CLASS_PATH,    /* alnum and / */
    CLASS_VALUE,   /* an unquoted value: up to a blank, quote, bracket or separator */
    CLASS_NOT_DQ,  /* up to " or the end of the line */
    CLASS_NOT_SQ,
    CLASS_NOT_BT,
    CLASS_LINE, /* up to the end of the line, a quote or a backslash */
    CLASS_COUNT,
    CLASS_PEM = CLASS_COUNT, /* not a table: see pem_step() */
    CLASS_ALL,
};
extern uint16_t redact_class_of[256]; /* bit n: belongs to class n */
void redact_classes_init(void);

/* ---- patterns ---- */
enum redact_kind {
    KIND_SECRET, /* complete as soon as its last byte was read */
    KIND_SHORT,  /* a short secret: needs word boundaries */
    KIND_ESCAPE, /* '%' or '\': a decoded view may start here */
    KIND_RUN,    /* anchor and a run of a class */
    KIND_FIXED,  /* anchor and exactly `min` characters */
    KIND_JWT,
    KIND_SENDGRID,
    KIND_BEARER,
    KIND_AUTHORIZATION,
    KIND_COOKIE,
    KIND_ASSIGN,
    KIND_URL,
    KIND_PEM,
};

struct redact_pattern {
    uint8_t kind;
    uint8_t class;
    uint8_t flags; /* SHAPE_* */
    uint16_t min;
    uint16_t len; /* of the literal */
    const char *name;
};
enum {
    SHAPE_DIGIT = 1,    /* a digit within the first 64 characters of the run */
    SHAPE_BOUNDARY = 2, /* not in the middle of a word */
    SHAPE_PASSWORD = 4, /* assignments: any value will do */
    SHAPE_UPPER = 8,    /* an upper-case letter within the first 64 */
};

/* ---- the automaton ---- */
struct redact_state {
    uint16_t depth;   /* length of the longest literal prefix that this state stands for */
    uint16_t secret;  /* index + 1 of the longest secret that ends here */
    uint16_t anchors; /* index + 1 into `chain` */
    bool escape;
};
struct redact_link {
    uint16_t pattern;
    uint16_t next; /* index + 1 */
};

struct redact_secret {
    char name[REDACT_NAME_MAX + 1];
    struct br_secret value;
};

struct br_redact {
    uint8_t class_of[256]; /* byte to column */
    uint32_t columns;
    uint32_t *next;   /* [state * columns + column], a state times columns */
    uint32_t special; /* states from here on (times columns) have something to look at */
    struct redact_state *states;
    struct redact_link *chain;
    struct redact_pattern *patterns;
    size_t nstates, nchain, npatterns;
    unsigned max_depth;
    uint64_t generation; /* changes with every secret */
    struct redact_secret secrets[BR_REDACT_SECRETS_MAX];
    unsigned nsecrets;
    size_t secret_bytes;
};

/* Collects the literals of one build; lives in redact_build.c. */
struct redact_builder;
int redact_add(struct redact_builder *b, const void *literal, size_t n, struct redact_pattern p);
/* The built-in table; lives in redact_shapes.c. */
int redact_add_shapes(struct redact_builder *b);

/* ---- the scan ---- */
struct redact_interval {
    uint64_t start, end;
    const char *name;
    uint8_t rank; /* lower wins where two start together */
};

/* A run of one class that was measured already, so that no byte is measured twice. */
struct redact_run {
    uint64_t start, end;
    bool valid;
    uint8_t pem; /* state of pem_step() at `end`; PEM_DONE: cannot be continued */
};

/* The text seen through a decoder, only while it differs from the raw text. */
struct redact_view {
    bool active;
    uint8_t pending[8];
    unsigned npending;
    uint64_t pending_at;
    uint32_t state;
    uint64_t start_at; /* raw position of the activation */
    uint64_t count;    /* decoded bytes since then */
    uint64_t *ring;    /* raw positions of the latest of them */
};
enum { VIEW_PERCENT, VIEW_JSON, VIEW_COUNT };

struct redact_scan {
    const struct br_redact *r;
    const uint8_t *text; /* window: byte 0 is at position `base` */
    uint64_t base, end;  /* end of what is there */
    bool final;          /* nothing follows `end` */
    uint64_t pos;        /* next byte of the automaton */
    uint32_t state;
    bool retry; /* the anchors of `state` wait for more text */
    uint64_t out_pos;
    struct redact_interval *pending;
    size_t npending, cap_pending;
    uint32_t open;                        /* classes whose run reaches `end` and goes on */
    struct redact_run runs[CLASS_ALL][2]; /* the latest two of each */
    struct redact_view views[VIEW_COUNT];
    uint64_t ring_mask;
    bool brief; /* "*" instead of [redacted:NAME] */
    bool failed;
};

enum redact_verdict { VERDICT_NO, VERDICT_YES, VERDICT_MORE };
enum { PEEK_END = -1, PEEK_MORE = -2 };

static inline int redact_peek(const struct redact_scan *s, uint64_t at)
{
    if (at < s->end)
        return at < s->base ? PEEK_END : s->text[at - s->base];
    return s->final ? PEEK_END : PEEK_MORE;
}
static inline bool redact_is(int byte, enum redact_class c)
{
    return byte >= 0 && (redact_class_of[byte] >> c & 1);
}

/* The end of the run of class c that starts at `at`; *open: it reaches the end of the window, and
 * more text may follow. */
uint64_t redact_run_end(struct redact_scan *s, unsigned c, uint64_t at, bool *open);
/* Mark [start, end). */
void redact_mark(struct redact_scan *s, uint64_t start, uint64_t end, const char *name,
                 uint8_t rank);
/* Mark from `start` over the run of class c that starts at `run`. */
void redact_mark_run(struct redact_scan *s, uint64_t start, unsigned c, uint64_t run,
                     const struct redact_pattern *p);
/* Verify and mark one anchor whose literal ends at s->pos. */
enum redact_verdict redact_verify(struct redact_scan *s, const struct redact_pattern *p);

enum { PEM_BODY = 0, PEM_DONE = 0xff };
/* One byte of a PEM body: the next state, or PEM_DONE, with *belongs telling about this byte. */
uint8_t redact_pem_step(uint8_t state, uint8_t byte, bool *belongs);

#endif
