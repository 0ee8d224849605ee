/*
 * See quick.h. The data comes from the session and nothing of it is trusted: what is not understood
 * here to the last byte is not decided here. test_quick.c and fuzz_quick.c compare every answer
 * with that of the other way.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/events_priv.h"
#include "audit/quick.h"

enum node_kind { NODE_OBJECT, NODE_ARRAY, NODE_STRING, NODE_INT, NODE_TRUE, NODE_FALSE, NODE_NULL };

struct node {
    uint8_t kind;
    bool escaped; /* of a string: it has a character that is written as an escape */
    bool key_escaped;
    uint32_t next;  /* index + 1 of the next value of the same parent */
    uint32_t child; /* likewise, of the first one inside */
    uint32_t last;  /* likewise, of the last one inside */
    uint32_t count;
    uint32_t nkey, n;
    const char *key, *s; /* in `text`, terminated */
    int64_t i;
};

/* Keys come again and again. */
#define KEYS 128u
struct known_key {
    uint8_t n; /* 0: unused */
    char key[31];
    uint64_t generation; /* of the redactor that found nothing in it */
};

struct br_quick {
    struct node nodes[BR_QUICK_NODES_MAX];
    uint32_t nnodes;
    char text[BR_QUICK_BYTES_MAX + 2 * BR_QUICK_NODES_MAX];
    size_t ntext;
    struct known_key keys[KEYS];
    uint64_t second; /* that `at` is for, + 1 */
    char at[32];
    /* no byte of the data takes more than two, and the rest is bounded */
    uint8_t out[3 * BR_QUICK_BYTES_MAX + 4096];
    uint8_t *w;
};

struct br_quick *br_quick_new(void)
{
    return calloc(1, sizeof(struct br_quick));
}

void br_quick_free(struct br_quick **q)
{
    if (*q)
        explicit_bzero(*q, sizeof(**q));
    free(*q);
    *q = NULL;
}

/* ---- reading ---- */

struct reader {
    struct br_quick *q;
    const struct br_redact *r;
    const uint8_t *p, *end;
    bool high; /* there was a byte beyond ASCII */
};

static void skip_blanks(struct reader *rd)
{
    while (rd->p < rd->end && (*rd->p == ' ' || *rd->p == '\n' || *rd->p == '\t' || *rd->p == '\r'))
        rd->p++;
}

/* The character of an escape that both ways write the same; 0: another one. */
static char escape_of(uint8_t c)
{
    switch (c) {
    case '"':
    case '\\':
    case '/':
        return (char)c;
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return 0;
    }
}

/* A literal, behind its first quote. */
static bool read_string(struct reader *rd, const char **s, uint32_t *n, bool *escaped)
{
    struct br_quick *q = rd->q;
    char *to = q->text + q->ntext, *w = to;
    const uint8_t *p = rd->p, *end = rd->end;
    uint8_t high = 0;
    *escaped = false;
    for (; p < end && *p != '"'; p++) {
        uint8_t c = *p;
        if (c < 0x20 || c == 0x7f)
            return false;
        high |= c;
        if (c == '\\') {
            if (++p == end || !(c = (uint8_t)escape_of(*p)))
                return false;
            *escaped |= c != '/';
        }
        *w++ = (char)c;
    }
    if (p == end)
        return false;
    *w = 0;
    rd->high |= high & 0x80;
    rd->p = p + 1;
    *s = to;
    *n = (uint32_t)(w - to);
    q->ntext += *n + 1;
    return true;
}

/* Nothing in this key is hidden, and nothing under it for its sake. */
static bool key_is_plain(struct reader *rd, const char *key, uint32_t n)
{
    uint64_t generation = br_redact_generation(rd->r);
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)key[i]) * 16777619u;
    struct known_key *k = &rd->q->keys[(h ^ h >> 16) % KEYS];
    if (n && k->n == n && k->generation == generation && memcmp(k->key, key, n) == 0)
        return true;
    if (br_redact_key(key) || !br_redact_clean(rd->r, key, n))
        return false;
    if (n && n <= sizeof(k->key)) {
        *k = (struct known_key){.n = (uint8_t)n, .generation = generation};
        memcpy(k->key, key, n);
    }
    return true;
}

static bool read_int(struct reader *rd, int64_t *v)
{
    bool minus = *rd->p == '-';
    const uint8_t *p = rd->p + minus, *start = p;
    int64_t n = 0;
    while (p < rd->end && *p >= '0' && *p <= '9' && p - start < 18)
        n = n * 10 + (*p++ - '0');
    /* not: none, a leading zero, -0, one that may not fit, or a real */
    if (p == start || p - start > 17 || (*start == '0' && (p - start > 1 || minus)) ||
        p == rd->end || *p == '.' || *p == 'e' || *p == 'E')
        return false;
    *v = minus ? -n : n;
    rd->p = p;
    return true;
}

static bool read_word(struct reader *rd, const char *word, size_t n)
{
    if ((size_t)(rd->end - rd->p) < n || memcmp(rd->p, word, n) != 0)
        return false;
    rd->p += n;
    return true;
}

/* A value that holds no others; an object or array is only begun. */
static bool read_value(struct reader *rd, struct node *v)
{
    if (rd->p == rd->end)
        return false;
    switch (*rd->p) {
    case '{':
    case '[':
        v->kind = *rd->p++ == '{' ? NODE_OBJECT : NODE_ARRAY;
        return true;
    case '"':
        rd->p++;
        v->kind = NODE_STRING;
        return read_string(rd, &v->s, &v->n, &v->escaped) && br_redact_clean(rd->r, v->s, v->n);
    case 't':
        v->kind = NODE_TRUE;
        return read_word(rd, "true", 4);
    case 'f':
        v->kind = NODE_FALSE;
        return read_word(rd, "false", 5);
    case 'n':
        v->kind = NODE_NULL;
        return read_word(rd, "null", 4);
    default:
        v->kind = NODE_INT;
        return read_int(rd, &v->i);
    }
}

static bool key_is_new(const struct br_quick *q, const struct node *parent, const char *key,
                       uint32_t n)
{
    for (uint32_t i = parent->child; i; i = q->nodes[i - 1].next)
        if (q->nodes[i - 1].nkey == n && memcmp(q->nodes[i - 1].key, key, n) == 0)
            return false;
    return parent->count < 64; /* the search is for few */
}

static bool read_key(struct reader *rd, const struct node *parent, struct node *v)
{
    if (rd->p == rd->end || *rd->p++ != '"' ||
        !read_string(rd, &v->key, &v->nkey, &v->key_escaped) ||
        !key_is_plain(rd, v->key, v->nkey) || !key_is_new(rd->q, parent, v->key, v->nkey))
        return false;
    skip_blanks(rd);
    if (rd->p == rd->end || *rd->p++ != ':')
        return false;
    skip_blanks(rd);
    return true;
}

static uint32_t add_node(struct br_quick *q, struct node *parent, const struct node *v)
{
    q->nodes[q->nnodes] = *v;
    uint32_t id = ++q->nnodes;
    if (parent) {
        if (parent->last)
            q->nodes[parent->last - 1].next = id;
        else
            parent->child = id;
        parent->last = id;
        parent->count++;
    }
    return id;
}

/* The text is one object and nothing else. */
static bool read_all(struct reader *rd)
{
    struct br_quick *q = rd->q;
    uint32_t stack[BR_QUICK_DEPTH_MAX], depth = 0;
    q->nnodes = 0;
    q->ntext = 0;
    skip_blanks(rd);
    struct node first = {.kind = NODE_NULL};
    if (!read_value(rd, &first) || first.kind != NODE_OBJECT)
        return false;
    stack[depth++] = add_node(q, NULL, &first);
    while (depth) {
        struct node *parent = &q->nodes[stack[depth - 1] - 1], v = {.kind = NODE_NULL};
        uint8_t close = parent->kind == NODE_OBJECT ? '}' : ']';
        skip_blanks(rd);
        if (rd->p < rd->end && *rd->p == close) {
            rd->p++;
            depth--;
            continue;
        }
        if (parent->count) {
            if (rd->p == rd->end || *rd->p++ != ',')
                return false;
            skip_blanks(rd);
        }
        if (q->nnodes == BR_QUICK_NODES_MAX || (close == '}' && !read_key(rd, parent, &v)) ||
            !read_value(rd, &v))
            return false;
        uint32_t id = add_node(q, parent, &v);
        if (v.kind > NODE_ARRAY)
            continue;
        if (depth == BR_QUICK_DEPTH_MAX)
            return false;
        stack[depth++] = id;
    }
    skip_blanks(rd);
    return rd->p == rd->end;
}

/* ---- writing ---- */

static void put(struct br_quick *q, const void *p, size_t n)
{
    memcpy(q->w, p, n);
    q->w += n;
}

static void put_byte(struct br_quick *q, char c)
{
    *q->w++ = (uint8_t)c;
}

static void put_string(struct br_quick *q, const char *s, uint32_t n, bool escaped)
{
    put_byte(q, '"');
    if (!escaped) {
        put(q, s, n);
    } else {
        for (uint32_t i = 0; i < n; i++) {
            char c = s[i];
            char e = c == '"' || c == '\\' ? c
                     : c == '\n'           ? 'n'
                     : c == '\r'           ? 'r'
                     : c == '\t'           ? 't'
                                           : 0;
            if (e)
                put_byte(q, '\\');
            put_byte(q, e ? e : c);
        }
    }
    put_byte(q, '"');
}

static void put_int(struct br_quick *q, int64_t v)
{
    char digits[24];
    unsigned n = 0;
    uint64_t u = v < 0 ? (uint64_t)-v : (uint64_t)v;
    do
        digits[sizeof(digits) - ++n] = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0)
        digits[sizeof(digits) - ++n] = '-';
    put(q, digits + sizeof(digits) - n, n);
}

static void put_plain(struct br_quick *q, const struct node *v)
{
    switch (v->kind) {
    case NODE_STRING:
        put_string(q, v->s, v->n, v->escaped);
        break;
    case NODE_INT:
        put_int(q, v->i);
        break;
    case NODE_TRUE:
        put(q, "true", 4);
        break;
    case NODE_FALSE:
        put(q, "false", 5);
        break;
    default:
        put(q, "null", 4);
    }
}

/* Any value, compact, keys in their order. */
static void put_value(struct br_quick *q, const struct node *v)
{
    const struct node *stack[BR_QUICK_DEPTH_MAX];
    uint32_t at[BR_QUICK_DEPTH_MAX], depth = 0;
    if (v->kind > NODE_ARRAY) {
        put_plain(q, v);
        return;
    }
    put_byte(q, v->kind == NODE_OBJECT ? '{' : '[');
    stack[depth] = v;
    at[depth++] = v->child;
    while (depth) {
        const struct node *parent = stack[depth - 1];
        uint32_t id = at[depth - 1];
        if (!id) {
            put_byte(q, parent->kind == NODE_OBJECT ? '}' : ']');
            depth--;
            continue;
        }
        const struct node *item = &q->nodes[id - 1];
        if (id != parent->child)
            put_byte(q, ',');
        at[depth - 1] = item->next;
        if (parent->kind == NODE_OBJECT) {
            put_string(q, item->key, item->nkey, item->key_escaped);
            put_byte(q, ':');
        }
        if (item->kind > NODE_ARRAY) {
            put_plain(q, item);
            continue;
        }
        put_byte(q, item->kind == NODE_OBJECT ? '{' : '[');
        stack[depth] = item;
        at[depth++] = item->child;
    }
}

static const struct node *child(const struct br_quick *q, const struct node *o, const char *key)
{
    size_t n = strlen(key);
    for (uint32_t i = o->child; i; i = q->nodes[i - 1].next)
        if (q->nodes[i - 1].nkey == n && memcmp(q->nodes[i - 1].key, key, n) == 0)
            return &q->nodes[i - 1];
    return NULL;
}

static bool put_usage(struct br_quick *q, const struct node *v)
{
    static const char *const names[] = {"promptTokens", "completionTokens", "totalTokens"};
    int64_t n[3];
    if (v->kind != NODE_OBJECT || v->count != 3)
        return false;
    put_byte(q, '{');
    for (int i = 0; i < 3; i++) {
        const struct node *item = child(q, v, names[i]);
        if (!item || item->kind != NODE_INT || item->i < 0 || item->i > BR_EVENT_INT_MAX)
            return false;
        n[i] = item->i;
        put_string(q, names[i], (uint32_t)strlen(names[i]), false);
        put_byte(q, ':');
        put_int(q, n[i]);
        put_byte(q, i < 2 ? ',' : '}');
    }
    return n[0] + n[1] == n[2];
}

static bool put_record(struct br_quick *q, const struct event_field *fields, const struct node *v,
                       unsigned depth);

static bool put_list(struct br_quick *q, const struct event_field *f, const struct node *v,
                     unsigned depth)
{
    if (v->kind != NODE_ARRAY || v->count > f->max)
        return false;
    put_byte(q, '[');
    for (uint32_t i = v->child; i; i = q->nodes[i - 1].next) {
        if (i != v->child)
            put_byte(q, ',');
        if (!put_record(q, f->fields, &q->nodes[i - 1], depth + 1))
            return false;
    }
    put_byte(q, ']');
    return true;
}

static bool put_field(struct br_quick *q, const struct event_field *f, const struct node *v,
                      unsigned depth)
{
    switch (f->kind) {
    case FIELD_TEXT:
        if (v->kind != NODE_STRING || v->n < f->min || v->n > f->max)
            return false;
        break;
    case FIELD_ENUM:
        if (v->kind != NODE_STRING || strlen(v->s) != v->n || !event_value_in(f->values, v->s))
            return false;
        break;
    case FIELD_INT:
    case FIELD_NUM:
        if (v->kind != NODE_INT || v->i < f->min || v->i > f->max)
            return false;
        break;
    case FIELD_BOOL:
        if (v->kind != NODE_TRUE && v->kind != NODE_FALSE)
            return false;
        break;
    case FIELD_OBJECT:
        if (v->kind != NODE_OBJECT)
            return false;
        break;
    case FIELD_ANY:
        break;
    case FIELD_USAGE:
        return put_usage(q, v);
    case FIELD_RECORD:
        return put_record(q, f->fields, v, depth + 1);
    case FIELD_LIST:
        return put_list(q, f, v, depth);
    default:
        return false;
    }
    put_value(q, v);
    return true;
}

/* The table is as deep as it is, whatever the data says. */
static bool put_record(struct br_quick *q, const struct event_field *fields, const struct node *v,
                       unsigned depth)
{
    uint32_t found = 0, written = 0;
    if (v->kind != NODE_OBJECT || depth > BR_QUICK_DEPTH_MAX)
        return false;
    put_byte(q, '{');
    for (const struct event_field *f = fields; f->name; f++) {
        const struct node *item = child(q, v, f->name);
        if (!item && !f->optional)
            return false;
        if (!item && !f->or_null)
            continue;
        if ((size_t)(q->out + sizeof(q->out) - q->w) < BR_EVENT_TYPE_MAX + 64)
            return false;
        if (written++)
            put_byte(q, ',');
        put_string(q, f->name, (uint32_t)strlen(f->name), false);
        put_byte(q, ':');
        if (!item)
            put(q, "null", 4);
        else if (!put_field(q, f, item, depth))
            return false;
        found += item != NULL;
    }
    put_byte(q, '}');
    return found == v->count;
}

/* As br_time_iso(); the second is written once. */
static void put_time(struct br_quick *q, uint64_t at_us)
{
    uint64_t second = at_us / 1000000u + 1;
    unsigned ms = (unsigned)(at_us / 1000u % 1000u);
    if (q->second != second) {
        br_time_iso(q->at, at_us);
        q->second = second;
    }
    size_t n = strlen(q->at);
    uint8_t *digits = q->w + n - 9; /* "123+00:00" */
    put(q, q->at, n);
    digits[0] = (uint8_t)('0' + ms / 100);
    digits[1] = (uint8_t)('0' + ms / 10 % 10);
    digits[2] = (uint8_t)('0' + ms % 10);
}

/* ---- the event ---- */

static const char *get(const void *ctx, const char *key)
{
    const struct br_quick *q = ctx;
    const struct node *v = child(q, &q->nodes[0], key);
    return v && v->kind == NODE_STRING ? v->s : NULL;
}

static enum event_member member(const void *ctx, const char *key)
{
    const struct br_quick *q = ctx;
    const struct node *v = child(q, &q->nodes[0], key);
    return !v ? MEMBER_ABSENT : v->kind == NODE_TRUE ? MEMBER_TRUE : MEMBER_OTHER;
}

bool br_quick_event(struct br_quick *q, const struct br_redact *r, struct br_event_order *o,
                    const char *type, const char *actor, const void *data, size_t n,
                    const char *event_id, uint64_t at_us, const uint8_t **out, size_t *nout)
{
    const struct event_type *t = event_type_find(type);
    struct reader rd = {.q = q, .r = r, .p = data, .end = (const uint8_t *)data + n};
    if (!t || t->internal || n > BR_QUICK_BYTES_MAX || !*event_id || strlen(event_id) > BR_NAME_MAX)
        return false;
    if (actor && *actor && !event_value_in(EVENT_ACTORS, actor))
        return false;
    if (!read_all(&rd) || (rd.high && !br_utf8_valid(data, n)))
        return false;
    q->w = q->out;
    put(q, "{\"v\":1,\"type\":\"", 15);
    put(q, t->type, strlen(t->type));
    put(q, "\",\"eventId\":\"", 13);
    put(q, event_id, strlen(event_id));
    put(q, "\",\"at\":\"", 8);
    put_time(q, at_us);
    put(q, "\",", 2);
    if (actor && *actor) {
        put(q, "\"actor\":\"", 9);
        put(q, actor, strlen(actor));
        put(q, "\",", 2);
    }
    put(q, "\"data\":", 7);
    if (!put_record(q, t->fields, &q->nodes[0], 0))
        return false;
    put_byte(q, '}');
    struct event_source src = {.get = get, .member = member, .ctx = q};
    if (event_order_apply(o, t->type, &src, NULL) < 0)
        return false;
    *out = q->out;
    *nout = (size_t)(q->w - q->out);
    return true;
}
