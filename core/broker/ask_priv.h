/*
 * core/broker, private: the parts of a request's check. ask.c has what all dialects share;
 * ask_chat.c, ask_responses.c and ask_messages.c have the lists of what one allows.
 */
#ifndef BR_BROKER_ASK_PRIV_H
#define BR_BROKER_ASK_PRIV_H

#include "broker/dialect.h"
#include "broker/scan.h"

/* What an image can cost; its bytes say nothing of that. */
#define BR_IMAGE_TOKENS 8192u
/* What a provider may add to a prompt of its own accord, for tools and the like. */
#define BR_ASK_TOKENS_BESIDE 1024u
/* Kinds of content are nested this deep at most: a tool's result, a document in it, its text. */
#define BR_CONTENT_DEPTH 4u

/* One request while it is read. */
struct br_ask {
    const struct br_lease *lease;
    const char *model;
    struct br_scan j;
    struct br_ask_facts *facts;
    struct br_err *err;
    bool failed; /* `err` is set */
    /* the text so far, rewritten: what was read up to `copied` is in `out` */
    struct br_buf *out;
    const char *copied;
    bool has_limit, has_options, has_store, has_model;
    bool says_what; /* the item that is read says its type, or its role */
    uint64_t image_bytes;
    unsigned images, content_depth;
};

/* -> false, with "'SUBJECT' ...; the request was not sent". */
bool br_ask_refuse(struct br_ask *q, const char *fmt, ...) BR_PRINTF(2, 3);
/* The text from `from` to where `q` has read is replaced by `text`. */
void br_ask_replace(struct br_ask *q, const char *from, const char *text);

/* One member of an object that has rules. `where` is for messages. */
struct br_ask_rule {
    struct br_scan_name key;
    bool (*check)(struct br_ask *q, const char *where); /* reads the value */
};
/* An object with these members only. False if the request is refused. */
bool br_ask_object(struct br_ask *q, const struct br_ask_rule *rules, unsigned n,
                   const char *where);
/* A list, each element of which `check` reads. Returns false if refused; *n counts. */
bool br_ask_list(struct br_ask *q, bool (*check)(struct br_ask *q, const char *where),
                 const char *where, uint32_t *n);

/* Checks of values. */
bool br_ask_any(struct br_ask *q, const char *where); /* anything; nobody fetches or runs it */
bool br_ask_image_type(struct br_ask *q, const char *where); /* "image/png" and the like */
bool br_ask_text(struct br_ask *q, const char *where);       /* a string, or null */
bool br_ask_number(struct br_ask *q, const char *where);     /* a number, or null */
bool br_ask_flag(struct br_ask *q, const char *where);       /* true, false or null */
bool br_ask_null(struct br_ask *q, const char *where);  /* null or an empty list: not allowed */
bool br_ask_false(struct br_ask *q, const char *where); /* false or null */
bool br_ask_model(struct br_ask *q, const char *where);
bool br_ask_stream(struct br_ask *q, const char *where);
bool br_ask_limit(struct br_ask *q, const char *where);  /* max_tokens and the like */
bool br_ask_tier(struct br_ask *q, const char *where);   /* "auto" or "default": not a dearer one */
bool br_ask_choice(struct br_ask *q, const char *where); /* tool_choice */
bool br_ask_tool_name(struct br_ask *q, const char *where);
bool br_ask_data_url(struct br_ask *q, const char *where); /* inline data, never an address */
bool br_ask_data(struct br_ask *q, const char *where);     /* inline data of an image */
bool br_ask_inline(struct br_ask *q, const char *where);   /* base64, or a data URL */
/* A string of this list. */
bool br_ask_word(struct br_ask *q, const char *where, const char *const *words, unsigned n,
                 const char *what);
/*
 * An object with a member "type" (anywhere in it), which must be one of `kinds`; its members are
 * then checked by that kind's rules. Without "type" it is the first kind where `bare` is true.
 */
struct br_ask_kind {
    const char *type;
    const struct br_ask_rule *rules;
    unsigned n;
};
bool br_ask_kinds(struct br_ask *q, const struct br_ask_kind *kinds, unsigned n, bool bare,
                  const char *where);

/* The bodies, from '{' on. */
bool br_ask_chat(struct br_ask *q);
bool br_ask_responses(struct br_ask *q);
bool br_ask_messages(struct br_ask *q);

#endif
